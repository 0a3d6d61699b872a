//! Chat templates in the shape of published ones, in our own words.

/// Template of a family.
pub(crate) struct Template {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    /// Added tokens that it prints.
    pub(crate) tokens: &'static [&'static str],
    /// Number of continued turns of the simple conversation, of three that could be.
    pub(crate) continued: usize,
    /// The same with tools, of four.
    pub(crate) continued_with_tools: usize,
}

pub(crate) const TEMPLATES: &[Template] = &[
    Template {
        name: "ChatML",
        source: CHATML,
        tokens: &["<|im_start|>", "<|im_end|>"],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "Qwen 3",
        source: QWEN,
        tokens: &[
            "<|im_start|>",
            "<|im_end|>",
            "<think>",
            "</think>",
            "<tool_response>",
            "</tool_response>",
        ],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "Qwen 3 Coder",
        source: QWEN_CODER,
        tokens: &["<|im_start|>", "<|im_end|>"],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "Qwen 3.5",
        source: QWEN_EMPTY_THOUGHTS,
        tokens: &["<|im_start|>", "<|im_end|>"],
        continued: 3,
        // Not behind the result of a call: its empty thoughts go once another question follows.
        continued_with_tools: 3,
    },
    Template {
        name: "Llama 3",
        source: LLAMA,
        tokens: &[
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|python_tag|>",
        ],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "DeepSeek",
        source: DEEP_SEEK,
        tokens: &[
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜User｜>",
            "<｜Assistant｜>",
        ],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "Mistral, instructions at the last message",
        source: MISTRAL,
        tokens: &[
            "<s>",
            "</s>",
            "[INST]",
            "[/INST]",
            "[AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
        ],
        continued: 3,
        // The result of a call leaves the question the last one.
        continued_with_tools: 1,
    },
    Template {
        name: "Mistral, instructions in front",
        source: MISTRAL_FRONT,
        tokens: &[
            "<s>",
            "</s>",
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
        ],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "gpt-oss",
        source: GPT_OSS,
        tokens: &[
            "<|start|>",
            "<|message|>",
            "<|end|>",
            "<|channel|>",
            "<|call|>",
            "<|return|>",
        ],
        continued: 3,
        continued_with_tools: 4,
    },
    Template {
        name: "counting",
        source: COUNTING,
        tokens: &["<|im_start|>", "<|im_end|>"],
        continued: 0,
        continued_with_tools: 0,
    },
];

const CHATML: &str = r"{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['content'] %}{{ message['content'] }}{% endif %}{% for call in message.tool_calls or [] %}<call>{{ call | tojson }}</call>{% endfor %}{{ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Tools in the leading message, results of tools joined, reasoning only after the last question.
const QWEN: &str = r##"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nThese functions can be called, within <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
                {{- tool_call.arguments | tojson }}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"##;

/// Tests whether the tools, which may be none, can be iterated.
const QWEN_CODER: &str = r"{%- if tools is iterable and tools | length > 0 %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}{% if message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}{{ message.tool_calls | tojson }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Answers after the last question have thoughts, be they empty. A question within tags is a tool's result.
const QWEN_EMPTY_THOUGHTS: &str = r"{%- set ns = namespace(is_found=false, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if not ns.is_found and message.role == 'user' %}
        {%- set content = message.content | string | trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.is_found = true %}
            {%- set ns.last = messages|length - 1 - loop.index0 %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' and loop.index0 > ns.last %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
    {{- message.content or '' }}{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}{{ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}";

/// The date and the tools in front, tools in the first question, one call a message.
const LLAMA: &str = r##"{{- bos_token }}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("no first question for the tools") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Answer with a call of one of these functions.\n\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"##;

/// All system messages in front, results of tools joined, answers without their reasoning.
const DEEP_SEEK: &str = r"{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<｜User｜>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{ '<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['function']['name'] + '\n' + (tool['function']['arguments'] | tojson) }}{%- set ns.is_first = true -%}{%- else %}{{ '\n' + tool['function']['name'] + '\n' + (tool['function']['arguments'] | tojson) }}{%- endif %}{%- endfor %}{%- set ns.is_first = false -%}{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{%- endif %}{%- if message['role'] == 'assistant' and not message['tool_calls'] %}{%- if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' + (message['content'] or '') + '<｜end▁of▁sentence｜>' }}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] or '' %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- if ns.is_output_first or not ns.is_tool %}{{ '<｜tool▁outputs▁begin｜>' + message['content'] }}{%- set ns.is_output_first = false %}{%- else %}{{ '\n' + message['content'] }}{%- endif %}{%- set ns.is_tool = true -%}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{ '<｜Assistant｜>' }}{% endif %}";

/// The system message and the tools before the last question.
const MISTRAL: &str = r##"{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.tool_calls is defined and message.tool_calls is not none) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] " + (tools | tojson) + "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {{- tool_call.function | tojson }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"##;

const MISTRAL_FRONT: &str = r##"{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set loop_messages = messages[1:] %}
    {%- if messages[0]['content'] is string %}
        {{- '[SYSTEM_PROMPT]' + messages[0]['content'] + '[/SYSTEM_PROMPT]' }}
    {%- else %}
        {{- '[SYSTEM_PROMPT]' + messages[0]['content'][0]['text'] + '[/SYSTEM_PROMPT]' }}
    {%- endif %}
{%- else %}
    {%- set loop_messages = messages %}
    {{- '[SYSTEM_PROMPT]Today is ' + strftime_now('%Y-%m-%d') + '.[/SYSTEM_PROMPT]' }}
{%- endif %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if message['content'] is string %}
            {{- '[INST]' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST]' }}
            {%- for block in message['content'] %}{%- if block['type'] == 'text' %}{{- block['text'] }}{%- endif %}{%- endfor %}
            {{- '[/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {%- if message['content'] is string %}{{- message['content'] }}{%- else %}{%- for block in message['content'] or [] %}{{- block['text'] }}{%- endfor %}{%- endif %}
        {%- for call in message.tool_calls or [] %}{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}{%- endfor %}
        {{- eos_token }}
    {%- elif message['role'] == 'tool' %}
        {{- '[TOOL_RESULTS]' + message.content|string + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"##;

/// Channels, the date, reasoning only where no answer follows, calls named by their results.
const GPT_OSS: &str = r##"{{- "<|start|>system<|message|>Current date: " + strftime_now("%Y-%m-%d") + "\n\nReasoning: " + (reasoning_effort or "medium") + "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if developer_message %}{{- "# Instructions\n\n" + developer_message + "\n\n" }}{%- endif -%}
    {%- if tools %}{{- "# Tools\n\n" }}{%- for tool in tools %}{{- "type " + tool.function.name + " = " + (tool.function.parameters | tojson) + ";\n" }}{%- endfor %}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content and ("<|channel|>analysis<|message|>" in message.content or "<|channel|>final<|message|>" in message.content) %}
            {{- raise_exception("channels belong into fields") }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- set future_final_message = namespace(found=false) %}
            {%- for future_message in loop_messages[loop.index:] %}
                {%- if future_message.role == 'assistant' and not future_message.tool_calls %}{%- set future_final_message.found = true %}{%- endif %}
            {%- endfor %}
            {%- set tool_call = message.tool_calls[0].function %}
            {%- if message.reasoning and not future_final_message.found %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.reasoning + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant to=functions." + tool_call.name + "<|channel|>commentary json<|message|>" + (tool_call.arguments|tojson) + "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("a result without its call") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"##;

/// The number of each message, from the last: every turn changes all of them.
const COUNTING: &str = r"{% for message in messages %}{{ '<|im_start|>' + loop.revindex | string + message['content'] + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}";
