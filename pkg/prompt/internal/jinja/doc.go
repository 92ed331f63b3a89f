// Package jinja renders chat templates exactly as Python's jinja2 does in the
// set-up that Hugging Face transformers gives it: the immutable sandbox,
// trim_blocks and lstrip_blocks on, loop controls, and a tojson that is
// json.dumps without ASCII escapes. Engines render prompts that way, and one
// character of difference makes a prompt useless for routing.
//
// What it does not know is refused, by [Compile] where the name stands in the
// template, else by [Template.Render]: never guessed. What Python would refuse
// is an error here, too.
//
// A template is bounded in steps, memory, output and depth, see [Limits]. There
// is no recursion whose depth the template or the request decides without such
// a bound, so no template can exhaust the stack.
//
// Start at [Compile]; values are built with [String], [NewDict] and the like.
package jinja
