#!/usr/bin/env python3
"""Tests the public `anthropic` package against `conductor demo`.

    pip install anthropic
    cargo build -p conductor
    python tests/clients/anthropic_client.py --conductor target/debug/conductor

The first part needs no API key: messages, streams, tools, token counts, and errors as the package's exceptions.
The second part adds clients with API keys to the configuration file of the running demo. It sends the keys as the
package does: in `x-api-key`, or in `Authorization` with `auth_token`. It checks a wrong key, a model that the client
may not use, the rate limit, and the package's own retries. The first failed check ends the script with exit code 1.
"""

import argparse
import sys
import types

import anthropic

# This script imports the demo and the checks from openai_client.py, which do not use the package `openai`.
sys.modules.setdefault("openai", types.SimpleNamespace(APIError=Exception))
from openai_client import KEY, MODEL, OTHER_KEY, Demo, expect  # noqa: E402

HELLO = [{"role": "user", "content": "Where does this go?"}]
WEATHER_TOOL = {
    "name": "weather",
    "description": "Tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOL_CONVERSATION = [
    {"role": "user", "content": "What is the weather in Ulm?"},
    {"role": "assistant", "content": [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "12 degrees"}]},
    ]},
]


def expect_error(claim, error_class, send):
    """Sends a request that must fail with an error of this class, and returns the error."""
    try:
        response = send()
    except anthropic.APIError as error:
        expect(claim, type(error) is error_class, repr(error))
        return error
    return expect(claim, False, f"the request succeeded: {response}")


def error_type(error):
    return error.body["error"]["type"]


def check_endpoints(client):
    """Checks every endpoint without an API key."""
    message = client.messages.create(model=MODEL, max_tokens=8, messages=HELLO, system="Be brief.")
    expect("a message has text", message.content[0].type == "text" and message.content[0].text, message)
    expect("a message has its stop reason", message.stop_reason == "max_tokens", message)
    expect("a message has its usage", message.usage.output_tokens == 8, message.usage)
    expect("a message has a request id", bool(message._request_id), message)
    with client.messages.stream(model=MODEL, max_tokens=8, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    is_whole = final.content[0].text == text and len(text.split()) > 1
    expect("the text deltas of a stream add up to the message", is_whole, (text, final))
    is_limited = final.usage.output_tokens == 8 and final.stop_reason == "max_tokens"
    expect("a stream has usage and a stop reason", is_limited, final)
    events = [event.type for event in client.messages.create(model=MODEL, max_tokens=2, messages=HELLO, stream=True)]
    ends = (events[0], events[-1])
    expect("a stream has its first and its last event", ends == ("message_start", "message_stop"), events)
    tools = client.messages.create(
        model=MODEL, max_tokens=4, messages=TOOL_CONVERSATION, tools=[WEATHER_TOOL], tool_choice={"type": "auto"}
    )
    expect("a conversation with tool results gets a message", tools.role == "assistant" and tools.content, tools)
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
    usage = message.usage
    prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    expect("the token count equals the prompt tokens of the usage", counted.input_tokens == prompt, (counted, usage))
    send = lambda: client.messages.create(model="none", max_tokens=1, messages=HELLO)
    error = expect_error("an unknown model gets NotFoundError", anthropic.NotFoundError, send)
    has_format = error.body["type"] == "error" and error_type(error)
    expect("the worker's error has the format of Anthropic's API", has_format, error.body)
    send = lambda: client.post("/v1/messages", body=[1], cast_to=object)
    error = expect_error("an invalid body gets BadRequestError", anthropic.BadRequestError, send)
    request_id = error.response.headers["request-id"]
    expect("the error has the request id", error.body["request_id"] == request_id, error.body)


def check_keys_and_limits(demo):
    """Checks API keys, permitted models and the rate limit."""
    client = lambda key, retries=0: anthropic.Anthropic(api_key=key, base_url=demo.base, max_retries=retries)
    create = lambda client: client.messages.create(model=MODEL, max_tokens=1, messages=HELLO)
    send = lambda: create(client("sk-wrong"))
    error = expect_error("a wrong key gets AuthenticationError", anthropic.AuthenticationError, send)
    has_type = error_type(error) == "authentication_error"
    expect("the error has its type and omits the key", has_type and "sk-wrong" not in str(error), error)
    send = lambda: client("sk-wrong").messages.count_tokens(model=MODEL, messages=HELLO)
    expect_error("a token count with a wrong key gets AuthenticationError", anthropic.AuthenticationError, send)
    send = lambda: create(client(OTHER_KEY))
    error = expect_error("a model that the client may not use gets NotFoundError", anthropic.NotFoundError, send)
    expect("the error has the type not_found_error", error_type(error) == "not_found_error", error)
    expect("a key in x-api-key is accepted", create(client(KEY)).content, "")
    with_token = anthropic.Anthropic(auth_token=KEY, base_url=demo.base, max_retries=0)
    expect("a key in Authorization is accepted", create(with_token).content, "")
    limited = None
    for _ in range(120):
        try:
            create(client(KEY))
        except anthropic.RateLimitError as error:
            limited = error
            break
    is_limited = limited is not None and error_type(limited) == "rate_limit_error"
    expect("a request over the limit gets RateLimitError", is_limited, limited)
    expect("the package's own retry succeeds", create(client(KEY, 3)).content, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/debug/conductor")
    parser.add_argument("--port", type=int, default=18090)
    options = parser.parse_args()
    demo = Demo(options.conductor, options.port)
    try:
        check_endpoints(anthropic.Anthropic(api_key="unused", base_url=demo.base, max_retries=0))
        demo.add_clients()
        check_keys_and_limits(demo)
    finally:
        code = demo.stop()
    expect("the router exits with code 0", code == 0, code)


if __name__ == "__main__":
    sys.exit(main())
