#!/usr/bin/env python3
"""Writes the golden prompts of pkg/prompt/chat from the oracle: jinja2 3.1.6, set
up as transformers does, behind what vLLM does to a request.

    python3 hack/templates/golden.py REQUESTS OUT NAME=FILE...

"make golden-templates" runs it with all templates. Variables of the environment
count in a FILE.
A FILE is a template, or a tokenizer_config.json that holds one. The result has
for each template and request the prompt, or null where the oracle refuses it.
"""
import copy
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
import jinja2.nodes as nodes
import jinja2.sandbox

TAG = "CONTINUE_FINAL_MESSAGE_TAG "
NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_keep"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _keep(self, context, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.filters["fromjson"] = env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    return env


def access(node, name, key):
    """Whether a node is a variable, or its item of a key, with filters around it."""
    if isinstance(node, nodes.Filter):
        return node.node is not None and access(node.node, name, key)
    if isinstance(node, nodes.Test) or isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return access(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    if not isinstance(node, (nodes.Getitem, nodes.Getattr)) or not isinstance(node.node, nodes.Name):
        return False
    attr = node.attr if isinstance(node, nodes.Getattr) else isinstance(node.arg, nodes.Const) and node.arg.value
    return access(node.node, name, None) and attr == key


def content_params(tree, macro, items):
    """The parameters of a macro that some call passes the content of a message to."""
    found = set()
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            pairs = list(zip(macro.args, call.args)) + [(a, k.value) for a in macro.args for k in call.kwargs if k.key == a.name]
            found |= {a.name for a, value in pairs if any(access(value, n, "content") for n in items)}
    return found


def content_rules(tree):
    """vLLM's rules for the content format of a template: those of 2025, and later ones."""
    names = ["messages"]
    for name in names:
        for a in tree.find_all(nodes.Assign):
            if access(a.node, name, None):
                if not isinstance(a.target, nodes.Name):
                    return False, False
                if a.target.name not in names:
                    names.append(a.target.name)
    items = []
    for f in tree.find_all(nodes.For):
        if any(access(f.iter, n, None) for n in names):
            if not isinstance(f.target, nodes.Name):
                return False, False
            items.append(f.target.name)
    inside = {}
    for macro in tree.find_all(nodes.Macro):
        for f in macro.find_all(nodes.For):
            inside[id(f)] = content_params(tree, macro, items)
    early = late = False
    for f in tree.find_all(nodes.For):
        own = any(access(f.iter, n, "content") for n in items)
        plain = isinstance(f.iter, nodes.Name) and f.iter.name in inside.get(id(f), {"content"})
        early, late = early or own, late or own or plain
    return early, late


MEDIA = {
    "image_url": "image", "input_image": "image", "image_pil": "image", "image_embeds": "image",
    "audio_url": "audio", "input_audio": "audio", "audio_embeds": "audio", "video_url": "video",
}


def content_of(content, parts):
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [{"type": "text", "text": content}]
    out, media = [], False
    for p in content:
        if isinstance(p, str):
            if p:
                out.append(p)
            continue
        kind = p.get("type")
        if kind in MEDIA:
            media = True
            if parts:
                out.append({"type": MEDIA[kind]})
            continue
        text = p.get(kind if kind in ("refusal", "thinking") else "text")
        if text is None:
            continue
        if parts:
            out.append({"type": "text", "text": text})
        elif text:
            out.append(text)
    if parts:
        return out
    return "\n".join((["\x01"] if media else []) + out)  # \x01 for what vLLM has of a model


def message_of(m, parts):
    out = {"role": m["role"], "content": content_of(m.get("content"), parts)}
    if m["role"] == "assistant":
        if m.get("tool_calls"):
            out["tool_calls"] = copy.deepcopy(m["tool_calls"])
            for c in out["tool_calls"]:
                a = c["function"].get("arguments")
                c["function"]["arguments"] = (json.loads(a) if isinstance(a, str) else a) if a else {}
        r, old = m.get("reasoning"), m.get("reasoning_content")
        if r == "" and old != "":
            raise ValueError("versions of vLLM differ")
        r = old if r is None else r
        if r is not None:
            out["reasoning"] = out["reasoning_content"] = r
    elif m["role"] == "tool" and "tool_call_id" in m:
        out["tool_call_id"] = m["tool_call_id"]
    if isinstance(m.get("name"), str):
        out["name"] = m["name"]
    if m["role"] == "developer":
        out["tools"] = m.get("tools")
    return out


def tool_of(t):
    f = {"name": t["function"]["name"], "description": None, "parameters": None}
    f.update(t["function"])
    out = {"type": "function", "function": f}
    for k, v in t.items():
        if k not in out:
            out[k] = v
    return out


def render(env, template, rules, tokens, body):
    """The prompt, if all versions of vLLM and transformers give the same."""
    prompts = {render_as(template, parts, newer, tokens, body) for parts in rules for newer in (False, True)}
    if len(prompts) > 1:
        raise ValueError("versions of vLLM differ")
    return prompts.pop()


def render_as(template, parts, newer, tokens, body):
    messages = [message_of(m, parts) for m in body["messages"]]
    variables = dict(tokens)
    variables.update(body.get("chat_template_kwargs") or {})
    if body.get("reasoning_effort") is not None:
        variables["reasoning_effort"] = body["reasoning_effort"]
        if newer and "enable_thinking" not in (body.get("chat_template_kwargs") or {}):
            variables["enable_thinking"] = body["reasoning_effort"] != "none"
    variables["documents"] = body.get("documents")
    tools = body.get("tools")
    resume = body.get("continue_final_message", False)
    last = messages[-1]["content"]
    if resume and newer:  # transformers 4.54 on marks the end of the message
        if isinstance(last, list):
            part = next(p for p in reversed(last) if "text" in p)
            part["text"] += TAG
        else:
            messages[-1]["content"] += TAG
    text = template.render(
        messages=messages,
        tools=None if tools is None else [tool_of(t) for t in tools],
        add_generation_prompt=body.get("add_generation_prompt", True),
        **variables,
    )
    if not resume:
        return text
    if newer:
        at = text.rindex(TAG.strip())
        return text[:at] if text[at : at + len(TAG)] == TAG else text[:at].rstrip()
    if isinstance(last, list):
        last = next(p["text"] for p in reversed(last) if "text" in p)
    core = last.strip()
    at = text.rindex(core)
    if text[at : at + len(last.lstrip())] == last:
        return text[: at + len(last.lstrip())]
    return text[: at + len(core)]


def load(path):
    source, tokens = open(path, encoding="utf-8").read(), {"bos_token": "<BOS>", "eos_token": "<EOS>"}
    if path.endswith(".json"):
        config = json.loads(source)
        source = config["chat_template"]
        if isinstance(source, list):
            source = source[0]["template"]
        tokens = {}
        for k, v in config.items():
            if k.endswith("_token"):
                v = v["content"] if isinstance(v, dict) else v
                if isinstance(v, str):
                    tokens[k] = v
    return source, tokens


def main():
    requests = json.load(open(sys.argv[1], encoding="utf-8"))
    result = {}
    for arg in sys.argv[3:]:
        name, path = arg.split("=", 1)
        path = os.path.expandvars(path)
        env = environment()
        source, tokens = load(path)
        rules = content_rules(env.parse(source))
        developer = '"developer"' in source or "'developer'" in source
        template = env.from_string(source)
        prompts = {}
        for r in requests:
            try:
                if not developer and any(m["role"] == "developer" for m in r["body"]["messages"]):
                    raise ValueError("versions of vLLM differ in the role of developers")
                prompts[r["name"]] = render(env, template, rules, tokens, r["body"])
            except Exception as e:  # whatever it is, the engine answers 400
                prompts[r["name"]] = None
                print(name, r["name"], type(e).__name__, str(e)[:100], file=sys.stderr)
        result[name] = {"early": rules[0], "late": rules[1], "prompts": prompts}
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False, indent=0, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()
