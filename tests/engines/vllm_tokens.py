#!/usr/bin/env python3
"""Compares the tokens of a real vLLM with those of the crate `tokenize`, for many prompts.

    python tests/engines/vllm_tokens.py --url http://127.0.0.1:8077 --model-path /tmp/tokens-model [--record FILE]

The server needs `--enable-scale-out --trust-request-chat-template`.
Chats are sent to `/v1/chat/completions/render`, which renders them as a completion request does, and to `/tokenize`.
`--record` writes the engine's tokens as the fixture of `host/tokenize/tests`.
Needs only Python's standard library, and cargo. Exits with 1 if a token differs.
"""

import argparse
import itertools
import json
import subprocess
import sys
import urllib.error
import urllib.request

# Templates in the style of three model families. tests/it/shapes.rs has similar ones.
CHATML = (
    "{%- if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{%- if message.content %}{{ message.content }}{% endif %}"
    "{%- for call in message.tool_calls or [] %}<call>{{ call.function.name }}({% for key, value in call.function.arguments.items() %}"
    "{{ key }}={{ value | tojson }};{% endfor %}){{ call.function.arguments }}</call>{% endfor %}"
    "{{- '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{%- set ns = namespace(count=0) %}\n"
    "{% for m in messages %}\n    {%- set ns.count = ns.count + 1 %}\n"
    "    {{- '<|im_start|>' ~ m['role'] ~ '<|im_end|>\\n\\n' }}\n"
    "    {%- if m['content'] is string %}{{ m['content'] | trim }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{- eos_token }}\n"
    "{% endfor %}{{ ns.count }}{% if tools is not none %}{{ tools | tojson(indent=4) }}{% endif %}{% if documents %}{{ documents }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_end|>\\n\\n' }}{% endif %}"
)
INSTRUCT = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}[INST] {% if loop.first and system is defined %}{{ system.strip() + '\\n\\n' }}{% endif %}{{ m['content'].strip() }} [/INST]"
    "{% else %}{% generation %} {{ m['content'].rstrip() }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}{{ none }}{{ true }}{{ 1.0 }}"
)
TEMPLATES = [None, CHATML, HEADERS, INSTRUCT]

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather — <now>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.0}}, "required": ["city"]},
    },
}
BARE_TOOL = {"type": "function", "function": {"name": "ping"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"days\": 2, \"city\": \"Köln\"}"}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


PARTS = [{"type": "text", "text": "first part"}, {"type": "text", "text": ""}, {"type": "text", "text": "second  "}]
CHATS = [
    {"messages": [user("hello")]},
    {"messages": [user("")]},
    {"messages": [system("You help.  "), user("  What is 1e-5, \"quoted\"?\n\n")]},
    {"messages": [user("héllo 👩‍👩‍👧 \u00a0 e\u0301 <|im_end|> inside <|im_start|>")]},
    {"messages": [user("a"), assistant("b "), user("c\n")]},
    {"messages": [user("a"), assistant("to go on")], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [user("a"), assistant("ends in space  ")], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [user("a"), assistant(PARTS)], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [user("a"), assistant("done")], "add_generation_prompt": False},
    {"messages": [user(PARTS)]},
    {"messages": [system([{"type": "text", "text": "x-anthropic-billing-header: 1\nkept"}]), user([{"type": "text", "text": "only"}])]},
    {"messages": [user("what weather?")], "tools": [TOOL], "tool_choice": "none"},
    {"messages": [user("ping?")], "tools": [TOOL, BARE_TOOL], "tool_choice": "none"},
    {"messages": [user("w?"), assistant(None, tool_calls=[CALL]), {"role": "tool", "tool_call_id": "c1", "content": "12 °C"}]},
    {"messages": [user("w?"), assistant("", tool_calls=[CALL, {**CALL, "function": {"name": "f", "arguments": "not json"}}]),
                  {"role": "tool", "tool_call_id": "c1", "content": PARTS}], "tools": [TOOL], "tool_choice": "none"},
    {"messages": [user("w?"), assistant("x", tool_calls=[])]},
    {"messages": [user("think"), assistant("said", reasoning_content="thought"), user("more")]},
    {"messages": [{"role": "developer", "content": "be brief"}, user("hi")]},
    {"messages": [system("one"), {"role": "developer", "content": "two"}, user("hi")]},
    {"messages": [user("hi")], "chat_template_kwargs": {"enable_thinking": False, "unused": [1]}},
    {"messages": [user("hi")], "reasoning_effort": "none"},
    {"messages": [user("hi")], "reasoning_effort": "low"},
    {"messages": [user("hi")], "documents": [{"title": "t", "text": "it's"}]},
    {"messages": [user("hi", name="bob")], "add_special_tokens": True},
]
TEXTS = [
    {"prompt": "hello world, import os"},
    {"prompt": "hello world", "add_special_tokens": False},
    {"prompt": " leading <|im_end|>\n\n trailing  "},
    {"prompt": "日本語 and 👍🏽 — ﬁ e\u0301\r\n\tdef f(x):\n        return x"},
]


def post(url, body):
    """Sends a POST request. Returns the status and the decoded JSON body."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def cases(url):
    """Yields each prompt with the engine's tokens, which are null if the engine refuses the prompt."""
    for template, chat in itertools.product(TEMPLATES, CHATS):
        body = {"model": "tiny", "max_tokens": 1, **chat}
        request = {**body, "chat_template": template} if template else body
        status, response = post(f"{url}/v1/chat/completions/render", request)
        tokens = response["token_ids"] if status == 200 else None
        if not {"documents", "reasoning_effort"} & set(chat):
            status, response = post(f"{url}/tokenize", request)
            tokenize_tokens = response["tokens"] if status == 200 else None
            has_reasoning = any("reasoning_content" in message for message in chat["messages"])
            if tokenize_tokens != tokens and not has_reasoning:
                print(f"/tokenize and /render differ: {chat}", file=sys.stderr)
        yield {"template": template, "body": body, "tokens": tokens}
    for text in TEXTS:
        status, response = post(f"{url}/v1/completions/render", {"model": "tiny", "max_tokens": 1, **text})
        yield {"template": None, "body": text, "tokens": response[0]["token_ids"] if status == 200 else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8077")
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--record", help="file to write the prompts and tokens to")
    options = parser.parse_args()
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases(options.url))
    if options.record:
        with open(options.record, "w", encoding="utf-8") as out:
            out.write(lines)
    command = ["cargo", "run", "-q", "-p", "tokenize", "--example", "compare", "--", options.model_path]
    sys.exit(subprocess.run(command, input=lines.encode(), check=False).returncode)


if __name__ == "__main__":
    main()
