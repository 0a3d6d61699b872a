#!/usr/bin/env python3
"""Runs the public `anthropic` package through `conductor demo` as it is started.

    pip install anthropic
    cargo build -p conductor
    python tests/clients/anthropic_client.py --conductor target/debug/conductor

First without keys: messages, streams, tools, counted tokens, and errors as the package's own exceptions. Then clients are written into
the demo's configuration file while it runs: keys as the package sends them (`x-api-key`, or `Authorization` with `auth_token`), a wrong
key, a model of others, a limit and the package's own retry. Exits with 1 at the first thing that is otherwise.
"""

import argparse
import sys
import types

import anthropic

# Of the other client's script only the demo and the way of saying so are of use here; it needs no `openai` for them.
sys.modules.setdefault("openai", types.SimpleNamespace(APIError=Exception))
from openai_client import KEY, MODEL, OTHER, Demo, expect  # noqa: E402

HELLO = [{"role": "user", "content": "Where does this go?"}]
WEATHER = {
    "name": "weather",
    "description": "Tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLED = [
    {"role": "user", "content": "What is the weather in Ulm?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "12 degrees"}]}]},
]


def refused(what, kind, ask):
    try:
        seen = ask()
    except anthropic.APIError as error:
        expect(what, type(error) is kind, repr(error))
        return error
    return expect(what, False, f"it was answered: {seen}")


def error_type(error):
    return error.body["error"]["type"]


def use_everything(client):
    message = client.messages.create(model=MODEL, max_tokens=8, messages=HELLO, system="Be brief.")
    expect("a message has text", message.content[0].type == "text" and message.content[0].text, message)
    expect("and says why it ended", message.stop_reason == "max_tokens", message)
    expect("and what it used", message.usage.output_tokens == 8, message.usage)
    expect("and names its request", bool(message._request_id), message)
    with client.messages.stream(model=MODEL, max_tokens=8, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    expect("a stream adds up to a message", final.content[0].text == text and len(text.split()) > 1, (text, final))
    expect("with its usage", final.usage.output_tokens == 8 and final.stop_reason == "max_tokens", final)
    events = [event.type for event in client.messages.create(model=MODEL, max_tokens=2, messages=HELLO, stream=True)]
    expect("its events begin and end", (events[0], events[-1]) == ("message_start", "message_stop"), events)
    tools = client.messages.create(model=MODEL, max_tokens=4, messages=CALLED, tools=[WEATHER], tool_choice={"type": "auto"})
    expect("a conversation with tools is answered", tools.role == "assistant" and tools.content, tools)
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
    usage = message.usage
    prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    expect("tokens are counted as they are used", counted.input_tokens == prompt, (counted, usage))
    none = refused("no such model", anthropic.NotFoundError, lambda: client.messages.create(model="none", max_tokens=1, messages=HELLO))
    expect("it is told so in Anthropic's shape, by the worker", none.body["type"] == "error" and error_type(none), none.body)
    bad = refused("a body that is none", anthropic.BadRequestError, lambda: client.post("/v1/messages", body=[1], cast_to=object))
    expect("with its request", bad.body["request_id"] == bad.response.headers["request-id"], bad.body)


def with_keys(demo):
    client = lambda key, retries=0: anthropic.Anthropic(api_key=key, base_url=demo.base, max_retries=retries)
    ask = lambda client: client.messages.create(model=MODEL, max_tokens=1, messages=HELLO)
    wrong = refused("a wrong key", anthropic.AuthenticationError, lambda: ask(client("sk-wrong")))
    expect("has the type of such errors", error_type(wrong) == "authentication_error" and "sk-wrong" not in str(wrong), wrong)
    count = lambda: client("sk-wrong").messages.count_tokens(model=MODEL, messages=HELLO)
    refused("a wrong key where tokens are counted", anthropic.AuthenticationError, count)
    stranger = refused("a model of others", anthropic.NotFoundError, lambda: ask(client(OTHER)))
    expect("does not exist", error_type(stranger) == "not_found_error", stranger)
    expect("a key in x-api-key", ask(client(KEY)).content, "")
    expect("a key in Authorization", ask(anthropic.Anthropic(auth_token=KEY, base_url=demo.base, max_retries=0)).content, "")
    limited = None
    for _ in range(120):
        try:
            ask(client(KEY))
        except anthropic.RateLimitError as error:
            limited = error
            break
    expect("over the limit", limited is not None and error_type(limited) == "rate_limit_error", limited)
    expect("the package's own retry gets through", ask(client(KEY, 3)).content, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conductor", default="target/debug/conductor")
    parser.add_argument("--port", type=int, default=18090)
    options = parser.parse_args()
    demo = Demo(options.conductor, options.port)
    try:
        use_everything(anthropic.Anthropic(api_key="unused", base_url=demo.base, max_retries=0))
        demo.add_clients()
        with_keys(demo)
    finally:
        code = demo.stop()
    expect("the router ends in order", code == 0, code)


if __name__ == "__main__":
    sys.exit(main())
