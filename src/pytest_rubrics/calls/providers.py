"""Which environment variables LiteLLM reads for a provider's address and key, without importing LiteLLM.

The address is part of a request's key, so it has to be known before LiteLLM is loaded, and on a replay it never is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# In the order in which LiteLLM (1.110) reads them for chat completions; the tests ask LiteLLM itself.
BASE_URL_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "azure": ("AZURE_API_BASE",),
    "azure_ai": ("AZURE_AI_API_BASE",),
    "cerebras": ("CEREBRAS_API_BASE",),
    "cohere": ("COHERE_API_BASE",),
    "cohere_chat": ("COHERE_API_BASE",),
    "dashscope": ("DASHSCOPE_API_BASE",),
    "deepinfra": ("DEEPINFRA_API_BASE",),
    "deepseek": ("DEEPSEEK_API_BASE",),
    "fireworks_ai": ("FIREWORKS_API_BASE",),
    "gemini": ("GEMINI_API_BASE",),
    "groq": ("GROQ_API_BASE",),
    "hosted_vllm": ("HOSTED_VLLM_API_BASE",),
    "litellm_proxy": ("LITELLM_PROXY_API_BASE",),
    "llamafile": ("LLAMAFILE_API_BASE",),
    "lm_studio": ("LM_STUDIO_API_BASE",),
    "minimax": ("MINIMAX_API_BASE",),
    "mistral": ("MISTRAL_AZURE_API_BASE",),
    "modelscope": ("MODELSCOPE_API_BASE",),
    "moonshot": ("MOONSHOT_API_BASE",),
    "novita": ("NOVITA_API_BASE",),
    "nvidia_nim": ("NVIDIA_NIM_API_BASE",),
    "ollama": ("OLLAMA_API_BASE",),
    "ollama_chat": ("OLLAMA_API_BASE",),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "openrouter": ("OPENROUTER_API_BASE",),
    "perplexity": ("PERPLEXITY_API_BASE",),
    "sambanova": ("SAMBANOVA_API_BASE",),
    "together_ai": ("TOGETHER_AI_API_BASE",),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_BASE",),
    "volcengine": ("VOLCENGINE_API_BASE",),
    "xai": ("XAI_API_BASE",),
    "zai": ("ZAI_API_BASE",),
}
API_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "gemini": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "hosted_vllm": ("HOSTED_VLLM_API_KEY",),
    "litellm_proxy": ("LITELLM_PROXY_API_KEY",),
    "llamafile": ("LLAMAFILE_API_KEY",),
    "lm_studio": ("LM_STUDIO_API_KEY",),
    "minimax": ("MINIMAX_API_KEY",),
    "mistral": ("MISTRAL_AZURE_API_KEY", "MISTRAL_API_KEY"),
    "modelscope": ("MODELSCOPE_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "novita": ("NOVITA_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "ollama_chat": ("OLLAMA_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "together_ai": ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "volcengine": ("VOLCENGINE_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
# LiteLLM guesses the provider of a model without a prefix from its name.
_BARE_NAMES = {
    "claude-": "anthropic",
    "chatgpt-": "openai",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4-": "openai",
}


def provider_of(model: str) -> str | None:
    """The provider of a LiteLLM model string, or None where it is not known.

    >>> provider_of("openrouter/openai/gpt-5.4"), provider_of("gpt-5.4")
    ('openrouter', 'openai')
    """
    prefix, slash, _ = model.partition("/")
    if slash:
        return prefix
    return next((provider for start, provider in _BARE_NAMES.items() if model.startswith(start)), None)


def effective_api_base(model: str, api_base: str | None) -> str | None:
    """The base URL that LiteLLM would use, or None for the provider's own.

    Args:
        model: LiteLLM model string.
        api_base: What the model's file says, which wins.
    """
    if api_base:
        return api_base
    variables = BASE_URL_VARIABLES.get(provider_of(model) or "", ())
    return next((value for name in variables if (value := os.environ.get(name))), None)
