#!/usr/bin/env python3
"""Records vLLM's conversion of Anthropic Messages requests to chats as a fixture of the crate `inference-api`.

    /path/of/vllm/venv/bin/python tests/engines/vllm_messages.py \
        --record host/inference-api/tests/fixtures/messages-vllm-0.32.0.jsonl

Runs vLLM's own code. Needs an installed vLLM, but no server and no model.
Writes one line for each request and combination of template rules: the body, the rules and the chat.
The chat is null if vLLM refuses the request.
"""

import argparse
import itertools
import json

from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Messages


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


def text(content, **more):
    return {"type": "text", "text": content, **more}


def tool_result(content, **more):
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
IMAGE_BY_URL = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"days": 2, "city": "Köln", "deep": {"b": [1.0, None], "a": True}}}
TOOL = {"name": "weather", "description": "Tells the weather — <now>", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "as": {}}, "required": ["city"]}}
BILLING = "x-anthropic-billing-header: cc_version=1; cch=abc\nkept"

BODIES = [
    {"messages": [user("hello")]},
    {"messages": [user("say \"x\"\n\u00e9 \\ 👩")], "system": "You help.  "},
    {"messages": [user("a"), assistant("b "), user("c\n")], "system": ""},
    {"messages": [user("hi")], "system": [text("one "), text(""), text("two", cache_control={"type": "ephemeral"})]},
    {"messages": [user("hi")], "system": [text(BILLING), text("kept")]},
    {"messages": [user("hi")], "system": BILLING},
    {"messages": [user("hi")], "system": [text(BILLING)]},
    {"messages": [user("hi")], "system": []},
    {"messages": [user([text("only")])]},
    {"messages": [user([text("first"), text(""), text("second")])]},
    {"messages": [user([text("")])]},
    {"messages": [user([])]},
    {"messages": [assistant([])]},
    {"messages": [user([text("what is it?"), IMAGE])]},
    {"messages": [user([IMAGE_BY_URL, text("and that?")])]},
    {"messages": [user([IMAGE])]},
    {"messages": [user([{"type": "image", "source": {}}, text("nothing there")])]},
    {"messages": [user([{"type": "image", "source": {"data": "QQ=="}}])]},
    {"messages": [user("w?"), assistant([CALL]), user([tool_result("12 °C")])], "tools": [TOOL]},
    {"messages": [user("w?"), assistant([text("let me see"), CALL, {**CALL, "id": "toolu_2", "input": {}}]), user([tool_result([text("12"), text("13")]), tool_result(None), text("and now?")])], "tools": [TOOL]},
    {"messages": [user("w?"), assistant([CALL]), user([tool_result([text("see"), IMAGE, IMAGE_BY_URL])])]},
    {"messages": [user("w?"), assistant([CALL]), user([tool_result([{"type": "tool_reference", "tool_name": "weather"}, {"type": "tool_reference", "name": "ping"}, {"type": "search_result", "x": 1}])])]},
    {"messages": [user("w?"), assistant([CALL]), user([tool_result("", is_error=True)])]},
    {"messages": [user("w?"), assistant([{"type": "tool_use", "id": "t", "name": "now"}]), user([{"type": "tool_result", "tool_use_id": "t"}])]},
    {"messages": [user("w?"), assistant([{"type": "tool_result", "tool_use_id": "t", "content": "odd"}])]},
    {"messages": [user("w?"), assistant([{"type": "tool_result", "tool_use_id": "t"}])]},
    {"messages": [user("think"), assistant([{"type": "thinking", "thinking": "thought \"so\"", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}, text("said")]), user("more")]},
    {"messages": [user("think"), assistant([{"type": "thinking", "thinking": "a", "signature": "s"}, {"type": "thinking", "thinking": "b"}, CALL])]},
    {"messages": [user("think"), assistant([{"type": "redacted_thinking", "data": "x"}]), user("go on")]},
    {"messages": [user("hi"), system("be brief"), assistant("ok"), system([text(BILLING), text("be kind"), text("er")]), user("more")], "system": "Base. "},
    {"messages": [user("hi"), system(BILLING), user("more")]},
    {"messages": [user("hi"), system(""), user("more")]},
    {"messages": [system("first"), user("hi")]},
    {"messages": [user("hi")], "tools": []},
    {"messages": [user("hi")], "tools": [{"name": "ping", "input_schema": {}}, {"name": "pong", "description": "", "input_schema": {"properties": {"x": {"default": 1e5}}}, "strict": True, "defer_loading": False}]},
    {"messages": [user("hi")], "tools": [TOOL], "tool_choice": {"type": "any"}},
    {"messages": [user("hi")], "tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}},
    {"messages": [user("hi")], "tools": [TOOL], "tool_choice": {"type": "none"}},
    {"messages": [user("hi")], "thinking": {"type": "disabled"}},
    {"messages": [user("hi")], "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "high"}},
    {"messages": [user("hi")], "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
    {"messages": [user("hi")], "thinking": {"type": "disabled"}, "output_config": {"effort": "xhigh"}},
    {"messages": [user("hi")], "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    {"messages": [user("hi")], "chat_template_kwargs": {"enable_thinking": False}, "metadata": {"user_id": "u"}},
    {"messages": [user([{"type": "document", "source": {}}])]},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [user(7)]},
    {"messages": [user([tool_result([5])])]},
    {"messages": [user("hi")], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"messages": [user("hi")], "output_config": {"effort": "extreme"}},
]


def convert(body, merge_system, disabled_effort):
    """Returns the chat that vLLM makes of a Messages body; None if vLLM refuses it.

    `merge_system` and `disabled_effort` are the rules of the chat template: system messages join the leading one, and
    the reasoning effort for disabled thinking.
    """
    try:
        copy = json.loads(json.dumps(body))
        request = AnthropicMessagesRequest.model_validate({"model": "m", "max_tokens": 2048, **copy})
        messages = []
        Messages._convert_system_message(request, messages, merge_inline_system=merge_system)
        Messages._convert_messages(request.messages, messages, merge_inline_system=merge_system)
        chat_request = Messages.to_chat_completion_request(
            request, merge_inline_system=merge_system, disabled_thinking_effort=disabled_effort
        )
    except ValueError:
        return None
    tools = None if chat_request.tools is None else [tool.model_dump() for tool in chat_request.tools]
    return {
        "messages": messages,
        "tools": tools,
        "reasoning_effort": chat_request.reasoning_effort,
        "chat_template_kwargs": chat_request.chat_template_kwargs,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", required=True, help="file to write the lines to")
    options = parser.parse_args()
    with open(options.record, "w", encoding="utf-8") as out:
        for body, merge_system, disabled_effort in itertools.product(BODIES, [False, True], ["none", "low"]):
            chat = convert(body, merge_system, disabled_effort)
            line = {"body": body, "merges_system": merge_system, "disabled_thinking": disabled_effort, "chat": chat}
            # Rules without an effect on the chat are omitted.
            is_default = not merge_system and disabled_effort == "none"
            if is_default or chat != convert(body, False, "none"):
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
