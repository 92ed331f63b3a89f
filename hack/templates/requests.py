#!/usr/bin/env python3
"""Writes random chat requests for golden.py: python requests.py OUT COUNT [SEED]"""
import json
import random
import sys

TEXTS = [
    "Hello", "", " ", "\n", "  padded \n", "a\nb\n\nc", "Zürich 東京 🗼", "<think>\nhm\n</think>\n\nyes", "<think>x</think>y</think>z", "no </think> here", "<|im_end|>", "{{ x }}",
    "'single' \"double\" \\ back", "<tool_response>\nx\n</tool_response>", "\u2028\u00a0\u200b\x07", "[TOOL_CALLS]", "{\"a\": 1}", "long " * 30,
]
ARGS = ["", "{}", '{"a": 1}', '{"b": "x\\ny", "a": [1, 2.0, null, true], "c": {"d": "é<&>"}}', '{"f": 1e10, "g": 0.1, "h": -3, "big": 99999999999999999999}', '{"s": "multi\\nline", "e": {}, "l": []}']


def schema(r, depth=2):
    kind = r.choice(["string", "integer", "number", "boolean", "array", "object"] if depth else ["string", "integer"])
    out = {"type": r.choice([kind, [kind, "null"]]) if r.random() < 0.2 else kind}
    if r.random() < 0.6:
        out["description"] = r.choice(TEXTS)
    if kind == "array":
        out["items"] = schema(r, depth - 1)
    if kind == "object":
        out["properties"] = {r.choice(["city", "items", "Ünit", "n", "keys"]): schema(r, depth - 1) for _ in range(r.randint(0, 3))}
        if r.random() < 0.5:
            out["required"] = list(out["properties"])[:1]
    if r.random() < 0.2:
        out["enum"] = r.choice([["a", "b"], [1, 2.5], [None, True]])
    if r.random() < 0.2:
        out["default"] = r.choice([None, 1, 1.0, "x", False, {"b": 1, "a": 2}])
    return out


def tool(r, i):
    f = {"name": f"tool_{i}", "description": r.choice(TEXTS), "parameters": dict(schema(r, 3), type="object")}
    f["parameters"].setdefault("properties", {})
    if r.random() < 0.15:
        del f["description"]
    if r.random() < 0.1:
        f["strict"] = True
    items = list(f.items())
    r.shuffle(items)
    return {"type": "function", "function": dict(items)}


def content(r):
    if r.random() < 0.75:
        return r.choice(TEXTS)
    return [
        {"type": "image_url", "image_url": {"url": "u"}} if r.random() < 0.2 else {"type": "text", "text": r.choice(TEXTS)}
        for _ in range(r.randint(0, 3))
    ]


def request(r):
    messages = []
    if r.random() < 0.5:
        messages.append({"role": r.choice(["system", "system", "developer"]), "content": r.choice(TEXTS)})
    for _ in range(r.randint(1, 4)):
        messages.append({"role": "user", "content": content(r)})
        if r.random() < 0.5:
            m = {"role": "assistant", "content": r.choice([None, r.choice(TEXTS), r.choice(TEXTS)])}
            if r.random() < 0.4:
                m[r.choice(["reasoning", "reasoning_content"])] = r.choice(TEXTS)
            messages.append(m)
            if r.random() < 0.5:
                calls = range(r.randint(1, 2))
                m["tool_calls"] = [{"id": f"call{i:05}", "type": "function", "function": {"name": f"tool_{i}", "arguments": r.choice(ARGS)}} for i in calls]
                for i in calls:
                    messages.append({"role": "tool", "tool_call_id": f"call{i:05}", "content": r.choice(TEXTS)})
                if r.random() < 0.6:
                    messages.append({"role": "assistant", "content": r.choice(TEXTS)})
    body = {"model": "m", "messages": messages}
    if r.random() < 0.5:
        body["tools"] = [tool(r, i) for i in range(r.randint(0, 3))]
    if r.random() < 0.3:
        body["chat_template_kwargs"] = {r.choice(["enable_thinking", "thinking", "preserve_thinking", "clear_thinking", "xml_tools"]): r.random() < 0.5}
    if r.random() < 0.2:
        body["reasoning_effort"] = r.choice(["low", "high", "none", "max"])
    if r.random() < 0.2:
        body["add_generation_prompt"] = False
    return body


def main():
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    out = [{"name": f"random_{i}", "body": request(r)} for i in range(int(sys.argv[2]))]
    json.dump(out, open(sys.argv[1], "w", encoding="utf-8"), ensure_ascii=False)


if __name__ == "__main__":
    main()
