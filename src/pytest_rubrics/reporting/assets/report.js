"use strict";
// Draws the report from the data inside the page. Texts of models, judges and data sets become text nodes; the only
// HTML that is inserted is what Python made of Markdown and sanitised, and charts.

const DATA = JSON.parse(document.getElementById("data").textContent);
const GRADE = ["task", "column", "repeat", "state", "reason", "score", "passed", "tokens", "cost", "seconds", "truncated"];
const GRADES = DATA.grades.map((row) => Object.fromEntries(GRADE.map((name, n) => [name, row[n]])));
const TASKS = DATA.tasks.map((task, number) => ({ ...task, number, grades: [] }));
for (const grade of GRADES) TASKS[grade.task].grades.push(grade);
const ROWS = 100; // tasks that are shown at first

// ---- small tools ---------------------------------------------------------------------------------------------------

const memory = {
  get(name) { try { return localStorage.getItem("rubrics-" + name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem("rubrics-" + name, value); } catch { /* a page from disk may have none */ } },
};
let language = memory.get("language") || ((navigator.language || "").startsWith("zh") ? "zh" : "en");
let theme = memory.get("theme") || "auto";

function t(key, values = {}) {
  return (WORDS[language][key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Markdown that Python rendered and sanitised.
function rich(html, name = "div") {
  const element = h(name, { class: "rich", dir: "auto" });
  element.innerHTML = html;
  for (const link of element.querySelectorAll("a")) {
    if (/^(https?|mailto):/.test(link.getAttribute("href") || "")) { link.target = "_blank"; link.append(h("span", { class: "unseen" }, " ↗")); }
    else link.removeAttribute("href");
  }
  for (const wide of element.querySelectorAll("table, pre")) {
    const box = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": wide.tagName === "TABLE" ? "table" : "code" });
    wide.replaceWith(box);
    box.append(wide);
  }
  return element;
}

function chart(svg, label) {
  const figure = h("div", { class: "figure scroll", role: "img", "aria-label": `${label}. ${t("chartTable")}`, tabindex: "0" });
  figure.innerHTML = svg;
  return figure;
}

const bdi = (text) => h("bdi", {}, text ?? "");
const unseen = (text) => h("span", { class: "unseen" }, text);
const number = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const signed = (value) => (value === null || value === undefined ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(3));
function percent(value, digits = 1) {
  if (value === null || value === undefined) return "–";
  const text = (100 * value).toFixed(digits);
  return value < 1 && Number(text) === 100 ? "99.9 %" : text + " %"; // never rounded up to all
}
function usd(value) {
  if (value === null || value === undefined) return "?";
  if (value === 0) return "$0";
  return "$" + (value >= 0.1 ? value.toFixed(2) : value.toPrecision(2));
}
function compact(value) {
  if (value < 1000) return String(value);
  return value < 1e6 ? (value / 1e3).toFixed(0) + "k" : (value / 1e6).toFixed(1) + "M";
}
const weight = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value);
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
const swatch = (column) => h("span", { class: `swatch color-${column % 8}`, "aria-hidden": "true" });
const labelOf = (column) => DATA.columns[column].label;
const named = (column) => [swatch(column), bdi(labelOf(column))];
// The same at the head of a narrow column: judge and run stand below the model.
const headed = (column) => [swatch(column), bdi(DATA.columns[column].model), DATA.columns[column].qualifiers.map((word) => h("span", { class: "below-name" }, bdi(word)))];
const interval = (estimate, show) => (!estimate ? "" : estimate.ci95 ? `${show(estimate.ci95[0])} – ${show(estimate.ci95[1])}` : t("noInterval"));
const columnsOf = (benchmark) => DATA.columns.map((column, n) => n).filter((n) => DATA.columns[n].benchmark === benchmark);

function table(caption, head, rows, options = {}) {
  const cells = (row, name) => row.map((cell, n) => {
    const { content, ...attributes } = cell !== null && typeof cell === "object" && "content" in cell ? cell : { content: cell };
    const isHead = name === "th" || (n === 0 && !options.plain);
    return h(isHead ? "th" : "td", { scope: isHead ? (name === "th" ? "col" : "row") : null, ...attributes }, content);
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: options.class },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, cells(head, "th"))),
      h("tbody", {}, rows.map((row) => h("tr", {}, cells(row, "td"))))));
}

const section = (title, hint, ...children) =>
  h("section", {}, h("h2", {}, title), hint ? h("p", { class: "hint" }, hint) : null, ...children);

// ---- texts on demand -----------------------------------------------------------------------------------------------

const blocks = new Map();
const waiting = new Map();
globalThis.rubricsBlock = (block, packed) => waiting.get(block)?.(packed);

function packedBlock(block) {
  if (DATA.inside) return Promise.resolve(document.getElementById("block-" + block).textContent);
  return new Promise((resolve, reject) => {
    waiting.set(block, resolve);
    const script = h("script", { src: `report_data/${block}.js` });
    script.onerror = () => reject(new Error(t("loadFailed", { file: `report_data/${block}.js` })));
    document.head.append(script);
  });
}

async function unpack(packed) {
  if (!("DecompressionStream" in globalThis)) throw new Error(t("oldBrowser"));
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

function readBlock(block) {
  if (!blocks.has(block)) {
    if (blocks.size > 24) blocks.delete(blocks.keys().next().value); // a page of many gigabytes must not stay in memory
    blocks.set(block, packedBlock(block).then(unpack).then(JSON.parse));
  }
  return blocks.get(block);
}

const textsOf = async (task) => (await readBlock(task.block))[task.number];

// ---- results of a task ---------------------------------------------------------------------------------------------

function resultOf(task, column) {
  const grades = task.grades.filter((grade) => grade.column === column);
  const graded = grades.filter((grade) => grade.state !== "excluded" && grade.score !== null);
  const marks = graded.filter((grade) => grade.passed !== null).map((grade) => Number(grade.passed));
  return { grades, graded, score: mean(graded.map((grade) => grade.score)), pass: mean(marks) };
}

function stateOf(grade) {
  if (grade.state !== "scored") return grade.state;
  return grade.passed === null ? "scored" : grade.passed ? "passed" : "below";
}

const SIGNS = { passed: "✓", below: "✗", scored: "●", failed: "!", excluded: "∅" };
const stateWord = (state) => (state === "passed" || state === "below" ? t(state) : t("state_" + state));

function badge(grade) {
  const state = stateOf(grade);
  return h("span", { class: `badge ${state}` }, h("span", { "aria-hidden": "true" }, SIGNS[state] + " "), stateWord(state),
    grade.reason ? [": ", bdi(grade.reason)] : null);
}

function scoreCell(task, column) {
  const { grades, score, pass } = resultOf(task, column);
  if (!grades.length) return { content: "", class: "number" };
  const states = [...new Set(grades.map(stateOf))];
  const state = states.length === 1 ? states[0] : pass > 0 && pass < 1 ? "below" : states[0];
  const signs = states.map((one) => SIGNS[one]).join("");
  return {
    class: `number mark ${states.length === 1 ? state : "mixed"}`,
    content: [score === null ? "–" : score.toFixed(3), " ", h("span", { "aria-hidden": "true" }, signs),
      unseen(" " + states.map(stateWord).join(", "))],
  };
}

function isFlipped(task) {
  const passes = columnsOf(task.benchmark).map((column) => resultOf(task, column).pass).filter((pass) => pass !== null);
  return passes.some((pass) => pass > 0 && pass < 1) || new Set(passes).size > 1;
}

const taskLink = (task, query = "") =>
  `#/task/${encodeURIComponent(task.benchmark)}/${encodeURIComponent(task.id)}${query}`;

// ---- the overview --------------------------------------------------------------------------------------------------

function overview() {
  const several = Object.keys(DATA.benchmarks).length > 1;
  return [
    ...DATA.runs.map(runHead),
    ...Object.entries(DATA.benchmarks).flatMap(([name, benchmark]) => [
      h("h1", { class: several ? "" : "only" }, bdi(benchmark.title || name)),
      inShort(name), headline(name, benchmark), slices(name, benchmark), tags(name), distribution(benchmark), costQuality(benchmark),
      repeats(name), agreement(name), reasons(name), differences(name),
    ]),
  ];
}

const VERDICTS = { PASS: "passed", FAIL: "below" };

function runHead(run) {
  const took = run.finished_at && run.started_at ? (new Date(run.finished_at) - new Date(run.started_at)) / 1000 : null;
  const notes = [
    ...run.sample.map((name) => t("sample", { name: run.benchmarks[name].title })),
    run.missing ? t("incomplete", run) : null,
    run.broken ? t("broken", { n: run.broken }) : null,
    Object.values(run.judge).some((judge) => judge.scale === "ternary") ? t("ternary") : null,
    DATA.columns.some((column) => DATA.runs[column.run] === run && column.failed && !DATA.benchmarks[column.benchmark].clip) ? t("unbounded") : null,
    ...[...Object.entries(run.models), ...Object.entries(run.judge)].map(([name, settings]) => settings.note && t("toy", { name, note: settings.note })),
  ].filter(Boolean);
  const gate = run.gate && h("p", { class: `gate ${VERDICTS[run.gate.verdict] || "excluded"}` },
    h("strong", {}, run.gate.verdict || t("notDecided")), " ", bdi(t("gate", run.gate)), h("span", { class: "why" }, bdi(run.gate.reason)));
  return h("div", { class: "run" },
    h("p", { class: "runname" }, bdi(run.name)),
    h("p", { class: "hint" }, t("started", { when: (run.started_at || "").replace("T", " ").replace("Z", " UTC") }), ", ",
      took === null ? t("unfinished") : t("took", { time: duration(took) }), ` · ${t("judge")}: `, bdi(Object.keys(run.judge).join(", "))),
    gate, notes.length ? h("ul", { class: "notes" }, [...new Set(notes)].map((note) => h("li", {}, bdi(note)))) : null);
}

function duration(seconds) {
  if (seconds < 90) return t("seconds", { n: Math.round(seconds) });
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? t("minutes", { n: minutes }) : t("hours", { n: Math.floor(minutes / 60), m: minutes % 60 });
}

// Sentences that Python made of the same figures.
function inShort(name) {
  const said = DATA.conclusions[name];
  const topics = [...new Set(said.map((one) => one.topic))];
  return section(t("inShort"), null, h("dl", { class: "short" }, topics.map((topic) => h("div", {}, h("dt", {}, t(topic === "who" && columnsOf(name).length === 1 ? "topic_result" : "topic_" + topic)),
    said.filter((one) => one.topic === topic).map((one) => h("dd", {}, bdi(one.text[language])))))));
}

function headline(name, benchmark) {
  const columns = columnsOf(name);
  const tracksOf = (n) => { const tracks = DATA.columns[n].tracks; return Object.keys(tracks).length > 1 ? tracks : { "": DATA.columns[n] }; };
  const tracks = [...new Set(columns.flatMap((n) => Object.keys(tracksOf(n))))];
  const has = (get) => columns.some((n) => Object.values(tracksOf(n)).some(get));
  const best = (track, judge) => Math.max(...columns.filter((n) => DATA.columns[n].judge === judge).map((n) => tracksOf(n)[track]?.mean?.value ?? -Infinity));
  const over = (track, word) => [track ? h("span", { class: "over" }, bdi(track)) : null, track ? " " : null, word];
  const estimate = (found, show, strong) => (!found ? "–" : [h(strong ? "strong" : "span", {}, show(found.value)), h("span", { class: "small muted" }, interval(found, show))]);
  const perTrack = (fields) => tracks.flatMap((track) => fields.map(([word, get, kind]) => ({
    head: over(track, t(word)), kind: "number", show: (n) => { const part = tracksOf(n)[track]; return part ? get(part, track, n) : ""; }, warns: kind === "coverage" && ((n) => tracksOf(n)[track]?.coverage < 1),
  })));
  const whole = (word, get, warns) => ({ head: word, kind: "number", show: (n) => get(DATA.columns[n]), warns: warns && ((n) => warns(DATA.columns[n])) });
  const draw = (title, fields) => table(title, [t("model"), ...fields.map(({ head, kind }) => ({ content: head, class: kind }))],
    columns.map((n) => [{ content: headed(n) }, ...fields.map(({ show, kind, warns }) => ({ content: show(n), class: kind + (warns && warns(n) ? " warn" : "") }))]), { class: "models" });
  const quality = perTrack([
    ["score", (part, track, n) => estimate(part.mean, number, part.mean?.value === best(track, DATA.columns[n].judge))],
    ...(has((part) => part.pass_rate) ? [["passRate", (part) => estimate(part.pass_rate, percent)]] : []),
    ["coverage", (part) => percent(part.coverage), "coverage"],
  ]);
  const currencies = [...new Set(columns.flatMap((n) => Object.keys(DATA.columns[n].economic_value || {})))];
  const rounded = (value) => Math.round(value).toLocaleString("en");
  const effort = [
    columns.some((n) => DATA.columns[n].track !== "vanilla") && { head: t("group"), kind: "", show: (n) => bdi(DATA.columns[n].track) },
    whole(t("tasks"), (part) => part.tasks), whole(t("scored"), (part) => part.scored), whole(t("failed"), (part) => part.failed),
    whole(t("excluded"), (part) => part.excluded, (part) => part.excluded > 0),
    ...currencies.map((currency) => whole([t("value"), " ", currency], (part) => { const found = part.economic_value?.[currency]; return found ? [rounded(found.earned), h("span", { class: "small muted" }, t("ofAll", { all: rounded(found.possible) }))] : "–"; })),
    whole(t("tokens"), (part) => compact(Object.values(part.tokens || {}).reduce((sum, one) => sum + one.input_tokens + one.output_tokens, 0))),
    whole(t("costAnswer"), (part) => usd(part.cost_usd?.answer)), whole(t("costJudge"), (part) => usd(part.cost_usd?.judge)), whole(t("spent"), (part) => usd(part.spent_usd)),
  ].filter(Boolean);
  const further = perTrack([
    ...(has((part) => part.macro_mean) ? [["macro", (part) => estimate(part.macro_mean, number)]] : []),
    ...(has((part) => part.exclusion_bounds) ? [["bounds", (part) => part.exclusion_bounds ? part.exclusion_bounds.mean.map((x) => number(x)).join(" – ") : ""]] : []),
  ]);
  return section(t("models"), t("modelsHint"),
    h("div", { class: "grid" }, Object.entries(benchmark.charts.models).map(([track, svg]) => h("figure", {}, track ? h("figcaption", {}, bdi(track)) : null, chart(svg, t("models") + " " + track)))),
    draw(t("models"), quality), h("h3", {}, t("effort")), draw(t("effort"), effort),
    further.length ? h("details", {}, h("summary", {}, t("further")), draw(t("further"), further)) : null);
}

function slices(name, benchmark) {
  const columns = columnsOf(name);
  const groups = [...new Set(columns.flatMap((n) => Object.keys(DATA.columns[n].groups || {})))];
  const draw = (group) => {
    const of = (n) => (group === "" ? DATA.columns[n].subsets : DATA.columns[n].groups[group] || {});
    const known = group === "" ? benchmark.subsets : [];
    const rows = [...new Set([...known, ...columns.flatMap((n) => Object.keys(of(n)))])];
    const [low, high] = benchmark.clip ? [0, 1] : range(columns.flatMap((n) => Object.values(of(n)).map((part) => part.mean?.value)));
    return table(t("slices"), [t(group === "" ? "subset" : "group"), ...columns.map((n) => ({ content: headed(n) }))],
      rows.map((row) => [bdi(row), ...columns.map((n) => {
        const part = of(n)[row];
        const value = part?.mean?.value;
        if (!part) return { content: "", class: "heat none" };
        const link = group === "" ? `#/tasks?subset=${encodeURIComponent(row)}&column=${n}` : null;
        const text = [h("span", { class: "big" }, number(value)), h("span", { class: "small" }, `${t("of", { a: part.scored + part.failed, b: part.scored + part.failed + part.excluded })}`)];
        return {
          class: "heat" + (value === undefined ? " none" : ""), title: interval(part.mean, number),
          "--heat": value === undefined ? "0%" : (55 * Math.min(1, Math.max(0, (value - low) / (high - low || 1)))).toFixed(0) + "%",
          content: link ? h("a", { href: link }, text) : text,
        };
      })]), { class: "heatmap" });
  };
  const box = h("div", {}, draw(""));
  const choice = groups.length ? h("label", { class: "inline" }, t("sliceBy"), " ",
    h("select", { onchange: (event) => box.replaceChildren(draw(event.target.value)) },
      h("option", { value: "" }, t("subset")), groups.map((group) => h("option", { value: group }, group.replaceAll("_", " "))))) : null;
  return section(t("slices"), t("slicesHint"), choice, box,
    benchmark.charts.subsets ? h("details", { open: columns.length * benchmark.subsets.length <= 24 }, h("summary", {}, t("forest")), chart(benchmark.charts.subsets, t("forest"))) : null);
}

function range(values) {
  const known = values.filter((value) => value !== undefined && value !== null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

function tags(name) {
  const columns = columnsOf(name);
  const rows = [...new Set(columns.flatMap((n) => Object.keys(DATA.columns[n].tags || {}).filter((row) => DATA.columns[n].tags[row].score)))];
  if (!rows.length) return null;
  return section(t("tags"), t("tagsHint"), table(t("tags"), [t("tag"), ...columns.map((n) => ({ content: headed(n) }))],
    rows.map((row) => [bdi(row), ...columns.map((n) => {
      const tag = DATA.columns[n].tags[row];
      const value = tag?.score?.value;
      return {
        class: "heat" + (value === undefined ? " none" : ""), "--heat": value === undefined ? "0%" : (55 * value).toFixed(0) + "%", title: interval(tag?.score, number),
        content: value === undefined ? "" : [h("span", { class: "big" }, percent(value)),
          h("span", { class: "small" }, [tag.hit_rate && `${t("hitRate")} ${percent(tag.hit_rate.value, 0)}`, tag.avoidance_rate && `${t("avoidance")} ${percent(tag.avoidance_rate.value, 0)}`].filter(Boolean).join(" · "))],
      };
    })]), { class: "heatmap" }));
}

function distribution(benchmark) {
  const found = Object.entries(benchmark.charts.scores);
  if (!found.length) return null;
  const hint = benchmark.pass_at === null ? t("distributionHintNone") : t("distributionHint", { mark: benchmark.pass_at });
  return section(t("distribution"), hint, h("div", { class: "grid" }, found.map(([n, svg]) =>
    h("figure", {}, h("figcaption", {}, named(Number(n))), chart(svg, `${t("distribution")} ${labelOf(n)}`)))));
}

function costQuality(benchmark) {
  if (!benchmark.charts.cost) return null;
  const columns = DATA.columns.map((column, n) => n).filter((n) => benchmark.charts.scores[n]);
  return section(t("costQuality"), t("costQualityHint"), h("p", { class: "legend" }, columns.map((n) => h("span", {}, named(n)))), chart(benchmark.charts.cost, t("costQuality")));
}

function repeats(name) {
  const columns = columnsOf(name).filter((n) => DATA.columns[n].repeats?.pass_at_k);
  if (!columns.length) return null;
  const ks = [...new Set(columns.flatMap((n) => Object.keys(DATA.columns[n].repeats.pass_at_k)))];
  const cell = (estimate) => ({ content: percent(estimate?.value), class: "number", title: interval(estimate, percent) });
  return section(t("repeats"), t("repeatsHint"), table(t("repeats"),
    [t("model"), ...ks.flatMap((k) => [`pass@${k}`, `pass^${k}`].map((content) => ({ content, class: "number" })))],
    columns.map((n) => [{ content: named(n) }, ...ks.flatMap((k) => [cell(DATA.columns[n].repeats.pass_at_k[k]), cell(DATA.columns[n].repeats.pass_hat_k[k])])])));
}

function agreement(name) {
  const found = [
    ...columnsOf(name).filter((n) => DATA.columns[n].panel).map((n) => ({ n, panel: DATA.columns[n].panel, title: named(n) })),
    ...Object.entries(DATA.benchmarks[name].joint_panels).map(([model, panel]) => ({ n: columnsOf(name).find((n) => DATA.columns[n].model === model), panel, title: [bdi(model), h("span", { class: "muted" }, " · ", t("jointAnswers", { n: panel.answers }))] })),
  ];
  if (!found.length) return null;
  const shown = (estimate, show) => ({ content: estimate ? [h("strong", {}, show(estimate.value)), h("span", { class: "small muted" }, estimate.ci95 ? interval(estimate, show) : "")] : "–", class: "number" });
  const numbers = (titles) => titles.map((content) => ({ content, class: "number" }));
  return section(t("agreement"), t("agreementHint"), h("div", { class: "grid" }, found.map(({ n, panel: { members, agreement: all, contested }, title }) => h("div", {},
    h("h3", {}, title),
    table(t("agreement"), [t("judge"), ...numbers([t("score"), t("passRate"), t("leniency")])],
      Object.entries(members).map(([judge, one]) => [bdi(judge), shown(one.mean, number), shown(one.pass_rate, percent), shown(one.leniency, percent)])),
    table(t("agreement"), [t("judges"), ...numbers([t("sameVerdict"), "κ / α"])], [
      [t("allJudges"), shown(all.unanimous, percent), shown(all.krippendorff_alpha, number)],
      ...(all.pairs.length > 1 ? all.pairs : []).map((pair) => [bdi(pair.members.join(" · ")), shown(pair.agreement, percent), shown(pair.cohen_kappa, number)])]),
    contested.length ? h("details", {}, h("summary", {}, t("contested")), table(t("contested"), [t("key"), t("criteria"), ...numbers([t("weight"), t("hitShare")])],
      contested.map((row) => { const task = TASKS.find((one) => one.id === row.task_id && one.benchmark === name); return [task ? h("a", { href: taskLink(task, `?column=${n}`) }, bdi(row.key)) : bdi(row.key), bdi(row.criterion), { content: weight(row.weight), class: "number" }, { content: percent(row.hit_share, 0), class: "number" }]; }))) : null))));
}

// Nested figures of any shape, as a list.
function tree(value) {
  if (value === null || typeof value !== "object") return h("span", {}, bdi(typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value ?? "–")));
  return h("dl", { class: "tree" }, Object.entries(value).map(([key, one]) => h("div", {}, h("dt", {}, bdi(key.replaceAll("_", " "))), h("dd", {}, tree(one)))));
}

function reasons(name) {
  const columns = columnsOf(name);
  const rows = [...new Set(columns.flatMap((n) => Object.keys(DATA.columns[n].reasons || {})))];
  if (!rows.length) return section(t("reasons"), null, h("p", {}, t("none")));
  return section(t("reasons"), t("reasonsHint"), table(t("reasons"), [t("reason"), ...columns.map((n) => ({ content: headed(n), class: "number" }))],
    rows.map((row) => {
      const [state, reason] = [row.slice(0, row.indexOf(": ")), row.slice(row.indexOf(": ") + 2)];
      return [{ content: [h("span", { class: `badge ${state}` }, h("span", { "aria-hidden": "true" }, SIGNS[state] + " "), t("state_" + state)), " ", bdi(reason)] },
        ...columns.map((n) => {
          const count = DATA.columns[n].reasons[row];
          return { class: "number", content: count ? h("a", { href: `#/tasks?state=${state}&reason=${encodeURIComponent(reason)}&column=${n}` }, count) : "0" };
        })];
    })));
}

// ---- differences ---------------------------------------------------------------------------------------------------

function differences(name) {
  const pairs = DATA.pairs.filter((pair) => DATA.columns[pair.a].benchmark === name);
  if (!pairs.some((pair) => pair.slices.some((slice) => slice.value !== null))) return null;
  const tracks = [...new Set(pairs.flatMap((pair) => pair.slices.map((slice) => slice.track)))];
  return section(t("pairs"), t("pairsHint"), table(t("pairs"), [t("second"), t("first"), ...tracks.map((track) => ({ content: track ? bdi(track) : t("difference"), class: "number" })), unseen(t("open"))],
    pairs.map((pair) => [{ content: headed(pair.b) }, { content: headed(pair.a) }, ...tracks.map((track) => differenceCell(pair.slices.find((slice) => slice.track === track))),
      h("a", { href: `#/compare?a=${pair.a}&b=${pair.b}` }, t("open"), unseen(` ${labelOf(pair.b)}, ${labelOf(pair.a)}`))]), { class: "pairs" }));
}

const pText = (p) => (p === null ? "" : p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`);

function differenceCell(slice) {
  if (!slice || slice.value === null) return { content: "–", class: "number" };
  const told = slice.p !== null && slice.p < 0.05;
  return { class: "number", content: [h(told ? "strong" : "span", { class: told ? "" : "muted" }, signed(slice.value)),
    h("span", { class: "small muted" }, slice.ci95 ? `${signed(slice.ci95[0])} – ${signed(slice.ci95[1])}, ${pText(slice.p)}` : t("noInterval"))] };
}

function differenceTable(pair) {
  const hasTrack = pair.slices.some((slice) => slice.track);
  const hasPasses = pair.slices.some((slice) => slice.passes);
  const words = [t("difference"), t("interval"), t("p"), t("better"), t("worse"), t("same"), ...(hasPasses ? [t("gained"), t("lost")] : []), t("sharedTasks")];
  return table(t("pairs"), [hasTrack ? t("track") : "", ...words.map((content) => ({ content, class: "number" }))], pair.slices.map((slice) => [
    hasTrack ? bdi(slice.track) : t("allTasks"),
    ...[h("strong", {}, signed(slice.value)), slice.ci95 ? `${signed(slice.ci95[0])} – ${signed(slice.ci95[1])}` : t("noInterval"), pText(slice.p).replace("p = ", "").replace("p ", "") || "–",
      slice.better, slice.worse, slice.same, ...(hasPasses ? [slice.passes?.gained ?? "–", slice.passes?.lost ?? "–"] : []), slice.tasks].map((content) => ({ content, class: "number" })),
  ]));
}

function comparePage(query) {
  if (!DATA.pairs.length) return [h("h1", {}, t("compare")), h("p", {}, t("noPair"))];
  const chosen = DATA.pairs.find((pair) => String(pair.a) === query.get("a") && String(pair.b) === query.get("b")) || DATA.pairs[0];
  const { a, b } = chosen;
  const select = h("select", { onchange: (event) => { location.hash = `#/compare?${event.target.value}`; } },
    DATA.pairs.map((pair) => h("option", { value: `a=${pair.a}&b=${pair.b}`, selected: pair === chosen }, `${labelOf(pair.b)} – ${labelOf(pair.a)}`)));
  const both = TASKS.map((task) => ({ task, x: resultOf(task, a), y: resultOf(task, b) })).filter(({ x, y }) => x.score !== null && y.score !== null)
    .sort((one, two) => Math.abs(two.y.score - two.x.score) - Math.abs(one.y.score - one.x.score));
  const mark = DATA.benchmarks[DATA.columns[a].benchmark].pass_at;
  const flips = both.filter(({ x, y }) => (x.score >= mark) !== (y.score >= mark));
  const rows = mark === null ? both.filter(({ x, y }) => x.score !== y.score).slice(0, 50) : flips;
  return [h("h1", {}, t("compare")), h("p", {}, h("label", { class: "inline" }, t("pairs"), " ", select)),
    section(t("pairs"), t("pairsHint"), h("p", { class: "legend" }, h("span", {}, named(b)), "−", h("span", {}, named(a))), differenceTable(chosen)),
    section(t(mark === null ? "changed" : "flips"), null, rows.length ? table(t("flips"),
      [t("key"), t("subset"), { content: headed(a), class: "number" }, { content: headed(b), class: "number" }, { content: t("difference"), class: "number" }, t("prompt")],
      rows.map(({ task, x, y }) => [h("a", { href: taskLink(task, `?column=${b}`) }, bdi(task.key)), bdi(task.subset), scoreCell(task, a), scoreCell(task, b),
        { content: h("strong", {}, signed(y.score - x.score)), class: "number" }, { content: bdi(task.title), class: "prompt" }])) : h("p", {}, t("flipsNone"))),
  ];
}

// ---- the table of tasks --------------------------------------------------------------------------------------------

let searched = { words: "", hits: null }; // tasks whose texts hold the words

function tasksPage(query) {
  const box = h("div", {});
  const status = h("p", { class: "hint", role: "status" });
  const state = Object.fromEntries(["q", "subset", "state", "reason", "column", "tag", "sort", "deep", "flipped"].map((name) => [name, query.get(name) || ""]));
  let shown = ROWS;
  const values = (get) => [...new Set(get)].filter(Boolean);
  const change = (name, value) => {
    state[name] = value;
    shown = ROWS;
    const kept = Object.entries(state).filter(([, one]) => one);
    history.replaceState(null, "", "#/tasks" + (kept.length ? "?" + new URLSearchParams(kept) : ""));
    draw();
  };
  const pick = (name, title, options) => options.length < 2 && !state[name] ? null : h("label", {}, h("span", {}, title),
    h("select", { onchange: (event) => change(name, event.target.value) }, h("option", { value: "" }, t("any")),
      options.map(([value, text]) => h("option", { value, selected: String(value) === state[name] }, text))));
  let timer = 0;
  const filters = h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "wide" }, h("span", {}, t("search")), h("input", { type: "search", value: state.q, placeholder: t("searchHint"),
      oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => change("q", event.target.value), 150); } })),
    pick("column", t("model"), DATA.columns.map((column, n) => [n, column.label])),
    pick("subset", t("subset"), values(TASKS.map((task) => task.subset)).map((name) => [name, name])),
    pick("state", t("state"), ["passed", "below", "scored", "failed", "excluded"].map((name) => [name, stateWord(name)])),
    pick("reason", t("reason"), values(GRADES.map((grade) => grade.reason)).map((name) => [name, name])),
    pick("tag", t("tag"), values(TASKS.flatMap((task) => [...task.tags, ...task.topics])).map((name) => [name, name])),
    h("div", { class: "checks" },
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: Boolean(state.deep), onchange: (event) => change("deep", event.target.checked ? "1" : "") }), t("deep")),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: Boolean(state.flipped), onchange: (event) => change("flipped", event.target.checked ? "1" : "") }), t("flipped")),
      h("a", { href: "#/tasks", class: "clear" }, t("clear"))));

  async function search(words) {
    if (searched.words === words && searched.hits) return;
    searched = { words, hits: new Set() };
    for (let block = 0; block < DATA.blocks; block += 1) {
      if (searched.words !== words) return;
      status.textContent = t("searching", { a: block + 1, b: DATA.blocks });
      for (const [n, texts] of Object.entries(await readBlock(block))) if (JSON.stringify(texts).toLowerCase().includes(words)) searched.hits.add(Number(n));
    }
    draw();
  }

  function fits(task) {
    const words = state.q.trim().toLowerCase();
    const near = !words || `${task.key} ${task.id} ${task.subset} ${task.topics.join(" ")} ${task.title}`.toLowerCase().includes(words);
    if (!near && !(state.deep && searched.words === words && searched.hits?.has(task.number))) return false;
    if (state.subset && task.subset !== state.subset) return false;
    if (state.tag && !task.tags.includes(state.tag) && !task.topics.includes(state.tag)) return false;
    if (state.flipped && !isFlipped(task)) return false;
    const wants = (grade) => (!state.column || grade.column === Number(state.column)) && (!state.reason || grade.reason === state.reason)
      && (!state.state || grade.state === state.state || stateOf(grade) === state.state);
    return !(state.column || state.state || state.reason) || task.grades.some(wants);
  }

  function draw() {
    const words = state.q.trim().toLowerCase();
    const columns = state.column ? [Number(state.column)] : DATA.columns.map((column, n) => n);
    const one = columns.length === 1;
    const sum = (task, name) => resultOf(task, columns[0]).grades.reduce((total, grade) => total + (grade[name] || 0), 0);
    const spread = (task) => { const known = columns.map((n) => resultOf(task, n).score).filter((score) => score !== null); return known.length > 1 ? Math.max(...known) - Math.min(...known) : null; };
    const fields = [
      { id: "key", title: t("key"), value: (task) => task.key, show: (task) => ({ content: h("a", { href: taskLink(task, one ? `?column=${columns[0]}` : "") }, bdi(task.key)) }) },
      { id: "subset", title: t("subset"), value: (task) => task.subset, show: (task) => bdi(task.subset) },
      ...columns.map((n) => ({ id: "c" + n, title: labelOf(n), swatch: n, value: (task) => resultOf(task, n).score, show: (task) => scoreCell(task, n), number: true })),
      ...(one ? [
        { id: "tokens", title: t("tokens"), value: (task) => sum(task, "tokens"), show: (task) => ({ content: compact(sum(task, "tokens")), class: "number" }), number: true },
        { id: "cost", title: t("cost"), value: (task) => sum(task, "cost"), show: (task) => ({ content: resultOf(task, columns[0]).grades.some((grade) => grade.cost === null) ? "?" : usd(sum(task, "cost")), class: "number" }), number: true },
        { id: "time", title: t("time"), value: (task) => sum(task, "seconds"), show: (task) => ({ content: t("seconds", { n: sum(task, "seconds").toFixed(0) }), class: "number" }), number: true },
      ] : [{ id: "spread", title: t("spread"), value: spread, show: (task) => ({ content: number(spread(task)), class: "number" }), number: true }]),
      { id: "prompt", title: t("prompt"), show: (task) => ({ content: bdi(task.title), class: "prompt" }) },
    ];
    let found = TASKS.filter(fits);
    const [id, direction] = state.sort.split(".");
    const field = fields.find((one_) => one_.id === id && one_.value);
    if (field) {
      const sign = direction === "down" ? -1 : 1;
      const keyed = found.map((task) => [field.value(task), task]);
      keyed.sort(([x], [y]) => (x === null ? 1 : y === null ? -1 : sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true }))));
      found = keyed.map(([, task]) => task);
    }
    status.textContent = t("found", { n: found.length, all: TASKS.length });
    if (state.deep && words && searched.words !== words) search(words);
    const head = fields.map((one_) => {
      if (!one_.value) return one_.title;
      const active = one_ === field;
      const next = active && direction !== "down" ? "down" : "up";
      return { class: one_.number ? "number" : "", "aria-sort": active ? (direction === "down" ? "descending" : "ascending") : null,
        content: h("button", { type: "button", class: "sort", title: t("sortBy", { name: one_.title }), onclick: () => { change("sort", `${one_.id}.${next}`); box.querySelectorAll("button.sort")[fields.indexOf(one_)]?.focus(); } },
          one_.swatch === undefined ? bdi(one_.title) : headed(one_.swatch), h("span", { "aria-hidden": "true" }, active ? (direction === "down" ? " ↓" : " ↑") : "")) };
    });
    box.replaceChildren(found.length ? table(t("tasks"), head, found.slice(0, shown).map((task) => fields.map((one_) => one_.show(task))), { class: "tasks" }) : h("p", {}, t("nothing")));
    if (found.length > shown) box.append(h("button", { type: "button", class: "more", onclick: () => { shown += 500; draw(); } }, t("showMore", { n: Math.min(500, found.length - shown) })));
  }
  draw();
  return [h("h1", {}, t("tasks")), filters, status, box];
}

// ---- one task ------------------------------------------------------------------------------------------------------

async function taskPage(benchmark, id, query) {
  const task = TASKS.find((one) => one.benchmark === benchmark && one.id === id);
  if (!task) return [h("h1", {}, t("tasks")), h("p", {}, t("unknownTask"))];
  const texts = await textsOf(task);
  const column = query.get("column");
  const repeat = Number(query.get("repeat") || 0);
  const chosen = Math.max(0, task.grades.findIndex((grade) => (column === null || grade.column === Number(column)) && (!repeat || grade.repeat === repeat)));
  const step = (offset, word, sign) => { const other = TASKS[task.number + offset]; return other ? h("a", { href: taskLink(other, column === null ? "" : `?column=${column}`), rel: offset < 0 ? "prev" : "next" }, offset < 0 ? sign + " " : "", t(word), offset > 0 ? " " + sign : "") : null; };
  const { task: own, grades } = texts;
  return [
    h("nav", { class: "steps", "aria-label": t("tasks") }, h("a", { href: "#/tasks" }, t("back")), h("span", {}, step(-1, "previous", "←"), " ", step(1, "next", "→"))),
    h("h1", {}, bdi(task.key), " ", h("span", { class: "muted" }, bdi(task.subset))),
    h("p", { class: "hint" }, bdi(task.topics.join(" / ")), own.value ? ` · ${t("taskValue")}: ${own.value.currency} ${own.value.amount}` : ""),
    section(t("prompt"), null, own.system ? h("details", {}, h("summary", {}, t("systemPrompt")), h("pre", { class: "plain", dir: "auto" }, own.system)) : null,
      rich(own.prompt), cutNote(own.cut)),
    task.grades.length ? section(t("grades"), null, gradeTable(task, chosen)) : null,
    task.grades.length ? gradeView(task, task.grades[chosen], grades[chosen], own, grades) : null,
  ];
}

const cutNote = (cut) => (cut ? h("p", { class: "hint" }, t("cut", { n: cut.toLocaleString("en") })) : null);

// A row a model and judge, a column a repeat.
function gradeTable(task, chosen) {
  const columns = [...new Set(task.grades.map((grade) => grade.column))].sort((x, y) => x - y);
  const repeats = [...new Set(task.grades.map((grade) => grade.repeat))].sort((x, y) => x - y);
  const head = repeats.length > 1 ? repeats.map((repeat) => `${t("repeat")} ${repeat}`) : [t("score")];
  return table(t("grades"), [t("model"), ...head], columns.map((column) => [{ content: named(column) }, ...repeats.map((repeat) => {
    const n = task.grades.findIndex((grade) => grade.column === column && grade.repeat === repeat);
    const grade = task.grades[n];
    return !grade ? "" : { class: n === chosen ? "chosen" : "", content: [h("a", { href: taskLink(task, `?column=${column}&repeat=${repeat}`), "aria-current": n === chosen ? "true" : null }, number(grade.score), unseen(" " + labelOf(column))), " ", badge(grade)] };
  })]), { class: "grades" });
}

function hitOf(verdict) {
  if (!verdict || (verdict.hit === null && verdict.value === undefined)) return null;
  return verdict.value ?? Number(verdict.hit);
}

// Weight that was lost: a reward that was missed, or a penalty that was hit.
const lost = (criterion, hit) => (hit === null ? 0 : criterion.weight > 0 ? criterion.weight * (1 - hit) : -criterion.weight * hit);

function outcome(criterion, hit) {
  if (hit === null) return ["excluded", "∅", "unjudged"];
  if (hit > 0 && hit < 1) return ["mixed", "◐", "partial"];
  if (criterion.weight < 0) return hit ? ["below", "✗", "violated"] : ["passed", "✓", "avoided"];
  return hit ? ["passed", "✓", "hit"] : ["below", "✗", "missed"];
}

function gradeView(task, grade, texts, own, all) {
  const found = new Map(texts.verdicts.map((verdict) => [String(verdict.id), verdict]));
  const criteria = own.criteria.map((criterion) => ({ criterion, verdict: found.get(String(criterion.id)), hit: hitOf(found.get(String(criterion.id))) }))
    .sort((x, y) => lost(y.criterion, y.hit) - lost(x.criterion, x.hit) || Math.abs(y.criterion.weight) - Math.abs(x.criterion.weight));
  const others = task.grades.map((other, n) => ({ other, texts: all[n], same: other !== grade && all[n].answer === texts.answer && other.repeat === grade.repeat })).filter(({ other }) => other.state === "scored");
  const missed = criteria.filter(({ criterion, hit }) => hit === null || lost(criterion, hit) > 0);
  const rest = criteria.filter((one) => !missed.includes(one));
  const show = ({ criterion, verdict, hit }) => criterionView(criterion, verdict, hit, others, DATA.columns[grade.column].judge);
  return h("div", { class: "sides" },
    section(t("answer"), null, h("p", { class: "legend" }, h("span", {}, named(grade.column)), badge(grade), grade.truncated ? h("span", { class: "badge excluded" }, t("truncated")) : null),
      texts.error ? h("p", { class: "error", dir: "auto" }, bdi(texts.error)) : null,
      texts.answer ? rich(texts.answer) : h("p", {}, t("noAnswer")), cutNote(texts.cut)),
    section(t("criteria"), null,
      texts.verdicts.length ? [missed.length ? h("ol", { class: "criteria" }, missed.map(show)) : null, rest.length ? [h("h3", {}, t("allCriteria")), h("ol", { class: "criteria" }, rest.map(show))] : null]
        : [h("p", {}, t("noVerdicts")), h("ol", { class: "criteria" }, own.criteria.map((criterion) => criterionView(criterion, null, null, others)))]),
    texts.trajectory?.length ? section(t("trajectory"), null, trajectory(texts.trajectory)) : null,
    details(task, texts));
}

function criterionView(criterion, verdict, hit, others, judge) {
  const [kind, sign, word] = outcome(criterion, hit);
  const loss = lost(criterion, hit);
  return h("li", { class: `criterion ${kind}` },
    h("p", { class: "criterionhead" }, h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign + " "), t(word), hit > 0 && hit < 1 ? ` ${percent(hit, 0)}` : ""),
      h("strong", { class: "weight" }, weight(criterion.weight)), h("span", { class: "muted" }, "[", bdi(criterion.id), "] ", bdi(criterion.tag)), loss ? h("span", { class: "lost" }, t("lostWeight", { n: Number(loss.toFixed(2)) })) : null),
    h("p", { dir: "auto" }, bdi(criterion.text)),
    verdict ? h("p", { class: "justification", dir: "auto" }, others.some(({ same }) => same) ? [h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign + " "), bdi(judge)), " "] : null, verdict.justification ? [unseen(t("justification") + ": "), bdi(verdict.justification)] : t("noJustification")) : null,
    verdict ? extras(criterion, verdict) : null,
    others.filter(({ same }) => same).map(({ other, texts }) => secondOpinion(criterion, other, texts)),
    others.length > 1 ? h("p", { class: "others" }, h("span", { class: "muted" }, t("others") + ": "), [...new Set(others.map(({ other }) => other.column))].sort((x, y) => x - y).map((column) =>
      h("span", { class: "other" }, named(column), " ", others.filter(({ other }) => other.column === column).map(({ texts }) => {
        const [otherKind, otherSign, otherWord] = outcome(criterion, hitOf(texts.verdicts.find((one) => String(one.id) === String(criterion.id))));
        return [h("span", { class: "sign " + otherKind, "aria-hidden": "true" }, otherSign), unseen(" " + t(otherWord))];
      })))) : null);
}

// What another judge said of the same answer.
function secondOpinion(criterion, other, texts) {
  const verdict = texts.verdicts.find((one) => String(one.id) === String(criterion.id));
  const [kind, sign, word] = outcome(criterion, hitOf(verdict));
  return h("p", { class: "justification", dir: "auto" }, h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign + " "), bdi(DATA.columns[other.column].judge), unseen(" " + t(word))), " ",
    verdict?.justification ? bdi(verdict.justification) : t("noJustification"));
}

// The votes of a panel, how sure the judge was, and whatever else stands in a verdict.
function extras(criterion, verdict) {
  const { id, hit, value, justification, members, p, ...more } = verdict;
  const votes = Object.entries(members || {}).map(([judge, vote]) => {
    const [kind, sign, word] = outcome(criterion, vote);
    return h("span", { class: "other " + kind }, bdi(judge), " ", h("span", { "aria-hidden": "true" }, sign), unseen(" " + t(word)));
  });
  if (p !== null && p !== undefined) votes.push(h("span", {}, `P = ${number(p)}`));
  if (votes.length) return h("p", { class: "others" }, h("span", { class: "muted" }, t("judges") + ": "), votes);
  return Object.values(more).some((one) => one !== null && one !== undefined) ? h("details", {}, h("summary", {}, t("details")), tree(more)) : null;
}

function trajectory(steps) {
  return h("ol", { class: "trajectory" }, steps.map((step) => h("li", {},
    h("details", {}, h("summary", {}, step.ended_by ? `${t("ended")}: ` : t("step", { n: step.step ?? "" }) + " ", bdi(step.ended_by || (step.calls || []).map((call) => call.tool).join(", "))),
      step.reasoning ? h("details", {}, h("summary", {}, t("reasoning")), h("pre", { class: "plain", dir: "auto" }, step.reasoning)) : null,
      step.text ? h("pre", { class: "plain", dir: "auto" }, step.text) : null,
      (step.calls || []).map((call) => h("div", { class: "call" + (call.is_error ? " failed" : "") }, h("p", {}, h("strong", {}, bdi(call.tool)), call.is_error ? [" ", h("span", { class: "badge failed" }, t("error"))] : null, h("span", { class: "muted" }, " ", t("seconds", { n: call.seconds ?? "–" }))),
        h("p", { class: "muted" }, t("arguments")), h("pre", { class: "plain", dir: "auto" }, call.arguments ?? ""), h("p", { class: "muted" }, t("result")), h("pre", { class: "plain", dir: "auto" }, call.result ?? ""))),
      step.failure ? h("p", { class: "error" }, bdi(step.failure)) : null))));
}

function details(task, texts) {
  const both = (value, show) => (value ? `${t("answer")}: ${show(value.answer)} · ${t("judge")}: ${show(value.judge)}` : "–");
  const rows = [
    [t("served"), both(texts.served_model, (x) => x ?? "–")], [t("finish"), texts.finish_reason ?? "–"],
    [t("tokens"), both(texts.usage, (x) => (x ? t("inputOutput", { a: x.input_tokens, b: x.output_tokens }) : "–"))], [t("cost"), both(texts.cost_usd, usd)],
    [t("spent"), usd(texts.spent_usd)], [t("time"), both(texts.seconds, (x) => t("seconds", { n: x ?? "–" }))],
    [t("cached"), both(texts.cached, (x) => t(x ? "yes" : "no"))], [t("cacheKeys"), Object.entries(texts.keys || {}).map(([part, keys]) => (keys || []).map((key) => h("div", {}, t(part), ": ", h("code", {}, key))))],
  ];
  return h("section", { class: "wide" }, h("h2", {}, t("details")), h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "string" ? bdi(value) : value)))),
    texts.judge_replies ? h("details", {}, h("summary", {}, t("rawReply")), [texts.judge_replies].flat().map((reply) => h("pre", { class: "plain", dir: "auto" }, typeof reply === "string" ? reply : JSON.stringify(reply, null, 2))))
      : h("p", { class: "hint" }, bdi(t("explain", { key: task.key }))));
}

// ---- settings, frame and routes ------------------------------------------------------------------------------------

function settingsPage() {
  const json = (value) => h("pre", { class: "plain" }, JSON.stringify(value, null, 2));
  return [h("h1", {}, t("settings")), ...DATA.runs.map((run) => h("section", {}, h("h2", {}, bdi(run.name)),
    ...[["models", run.models], ["judge", run.judge], ["data", run.benchmarks], ["options", run.options], ["command", run.command], ["versions", run.versions]].map(([name, value]) =>
      h("details", { open: name === "models" || name === "judge" }, h("summary", {}, t(name)), json(value)))))];
}

function drawFrame(route) {
  const link = (path, word) => h("a", { href: "#/" + path, "aria-current": route === path || (route === "task" && path === "tasks") ? "page" : null }, t(word));
  const next = { auto: "light", light: "dark", dark: "auto" };
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.documentElement.dataset.theme = theme;
  document.getElementById("skip").textContent = t("skip");
  document.title = `${DATA.runs.map((run) => run.name).join(", ")} – ${t("report")}`;
  document.getElementById("top").replaceChildren(
    h("nav", { "aria-label": t("report") }, link("", "overview"), link("tasks", "tasks"), DATA.pairs.length ? link("compare", "compare") : null, link("settings", "settings")),
    h("div", { class: "switches" },
      h("button", { type: "button", id: "language", "aria-label": t("languageLabel"), onclick: () => { language = language === "zh" ? "en" : "zh"; memory.set("language", language); show("language"); } }, t("language")),
      h("button", { type: "button", id: "theme", onclick: () => { theme = next[theme]; memory.set("theme", theme); drawFrame(route); document.getElementById("theme").focus(); } }, t("theme_" + theme))));
}

let turn = 0;

async function show(focus) {
  const mine = (turn += 1);
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [route, ...rest] = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const query = new URLSearchParams(search || "");
  drawFrame(route);
  const main = document.getElementById("main");
  let content;
  try {
    content = route === "tasks" ? tasksPage(query) : route === "task" ? await taskPage(rest[0], rest[1], query) : route === "compare" ? comparePage(query) : route === "settings" ? settingsPage() : overview();
  } catch (error) {
    content = [h("p", { class: "error", role: "alert" }, error.message)];
  }
  if (mine !== turn) return; // another page was asked for meanwhile
  main.replaceChildren(...content.flat(4).filter(Boolean), h("footer", {}, t("made", { version: DATA.version })));
  if (focus === "language") document.getElementById("language").focus();
  else if (focus !== "first") { main.focus({ preventScroll: true }); scrollTo(0, 0); document.getElementById("live").textContent = main.querySelector("h1")?.textContent || ""; }
}

addEventListener("hashchange", () => show());
addEventListener("beforeprint", () => document.querySelectorAll("#main details").forEach((one) => { one.open = true; }));
show("first");
