"""Which API keys a run lacks: said before anything is called, unless stored replies may make them needless."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.calls.endpoint import reply_row
from pytest_rubrics.calls.providers import API_KEY_VARIABLES, effective_api_base, provider_of
from pytest_rubrics.config import EndpointConfig
from pytest_rubrics.faults import Fault
from pytest_rubrics.options import RunConfig
from pytest_rubrics.variables import UnsetVariableError

# Servers of one's own usually ask for no key.
_KEYLESS = {"hosted_vllm", "litellm_proxy", "llamafile", "lm_studio", "ollama", "ollama_chat"}


def missing_keys(endpoints: Iterable[tuple[str, EndpointConfig]], config: RunConfig) -> list[Fault]:
    """Faults for endpoints whose key is not set, although they will have to be called.

    An endpoint that has stored replies may need no call at all: then a key that is missing after all excludes what
    has no reply, with the reason ``authentication``.

    Args:
        endpoints: Pairs of where an endpoint was named and its settings.
        config: The options of the run.
    """
    if config.cache_mode == "offline":
        return []
    lacking = [(fault, endpoint) for place, endpoint in endpoints if (fault := _lack(place, endpoint)) is not None]
    if lacking and config.cache_mode == "rw" and config.retry is None:
        lacking = _without_replies(lacking, config)
    return list(dict.fromkeys(fault for fault, _ in lacking))


def _lack(place: str, config: EndpointConfig) -> Fault | None:
    if config.serve is not None:
        return None
    for secret in (config.api_key, *config.headers.values()):
        try:
            if secret is not None:
                secret.resolve()
        except UnsetVariableError as error:
            where, _, message = str(error).partition(": ")
            return Fault(where, message)
    variables = API_KEY_VARIABLES.get(provider_of(config.model) or "", ())
    own = config.api_key is not None or effective_api_base(config.model, config.api_base) is not None
    if own or not variables or provider_of(config.model) in _KEYLESS or any(os.environ.get(name) for name in variables):
        return None
    message = f"{config.model} needs a key, and {' or '.join(variables)} is not set."
    return Fault(place, message, fix="Export it, or name another variable as api_key: ${NAME} in a YAML file.")


def _without_replies(
    lacking: list[tuple[Fault, EndpointConfig]], config: RunConfig
) -> list[tuple[Fault, EndpointConfig]]:
    if not config.cache_dir.is_dir():
        return lacking
    try:
        store = ReplyStore(config.cache_dir, warn=lambda _: None)
    except StoreError:  # the start of the engine says what is wrong
        return lacking
    try:
        return [(fault, endpoint) for fault, endpoint in lacking if store.get(_row(endpoint)) is None]
    finally:
        store.close()


def _row(endpoint: EndpointConfig) -> str:
    return reply_row(endpoint.model, effective_api_base(endpoint.model, endpoint.api_base))
