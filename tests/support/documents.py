"""PDF and Word files, written by hand as small as they can be."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>
</Types>"""
_RELATIONS = """<?xml version="1.0" encoding="UTF-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
 Target="word/document.xml"/></Relationships>"""
_DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>"""


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """Write a PDF with a line of text on each page; a page without text is blank."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream",
        ]
    content, offsets = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    start = len(content)
    content += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    content += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    path.write_bytes(content.encode("latin-1"))
    return path


def write_docx(path: Path, heading: str, paragraph: str, table: Sequence[Sequence[str]] = ()) -> Path:
    """Write a Word file with a heading, a paragraph and perhaps a table."""
    body = _paragraph(heading, '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>') + _paragraph(paragraph)
    if table:
        rows = ("".join(f"<w:tc>{_paragraph(cell)}</w:tc>" for cell in row) for row in table)
        body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", _TYPES)
        file.writestr("_rels/.rels", _RELATIONS)
        file.writestr("word/document.xml", _DOCUMENT.format(body=body))
    return path


def _paragraph(text: str, properties: str = "") -> str:
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"
