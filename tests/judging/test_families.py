from __future__ import annotations

import pytest

from pytest_rubrics.judging.families import families, self_preference


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("openai/gpt-5.4", {"OpenAI"}),
        ("o3-mini", {"OpenAI"}),
        ("openrouter/openai/gpt-oss-120b", {"OpenAI"}),
        ("bedrock/us.anthropic.claude-opus-4-6-v1:0", {"Claude"}),
        ("gemini/gemini-3.1-pro-preview", {"Gemini"}),
        ("dashscope/qwen3.5-plus", {"Qwen"}),
        ("openrouter/z-ai/glm-5", {"GLM"}),
        ("moonshot/kimi-k2.5", {"Kimi"}),
        ("xai/grok-4", {"Grok"}),
        ("volcengine/doubao-seed-2.0", {"Doubao"}),
        ("minimax/MiniMax-M2", {"MiniMax"}),
        ("ollama_chat/llama3.3", {"Llama"}),
        ("deepseek/deepseek-r1-distill-llama-70b", {"DeepSeek", "Llama"}),
        # The provider is no family, and neither is the server.
        ("openai/my-own-model", set()),
        ("gemini/other", set()),
        ("openai/foo10", set()),
    ],
)
def test_tells_the_family_by_the_name_alone(model: str, found: set[str]) -> None:
    assert families(model) == found


def test_warns_where_a_judge_marks_its_own_family() -> None:
    models = {"a": {"model": "openai/gpt-5.4"}, "b": {"model": "xai/grok-4"}}
    [line] = self_preference(models, {"model": "azure/gpt-5.2"}, "j")
    assert line.startswith("SELF-PREFERENCE: judge j and model a are both of the OpenAI family")


def test_warns_of_members_of_a_panel_and_of_ready_answers_by_their_name() -> None:
    panel = {"panel": ["x", "y"], "members": {"x": {"model": "a/qwen3"}, "y": {"model": "a/claude-opus"}}}
    [line] = self_preference({"claude-opus-4.6": {"answers": "reports"}}, panel, "p")
    assert line.startswith("SELF-PREFERENCE: member y and model claude-opus-4.6 are both of the Claude family")


def test_is_silent_where_families_differ_or_are_unknown() -> None:
    assert self_preference({"a": {"model": "openai/x"}}, {"model": "openai/x"}, "j") == []
