// Package chat turns a request body into the text of its prompt, as the engine
// that answers it does: it decodes the body in the order of its keys, brings it
// into the form that the engine hands to a chat template, and renders the
// template.
//
// A prompt is exact or refused. Whatever this package does not know how an
// engine would treat is an [*Error], whose code says why; nothing here guesses.
//
// What is followed, and where it ends:
//
//   - vLLM's OpenAI server ([VLLM]): of a message a template sees the role, the
//     content, calls with their arguments read, thoughts, the name and the id of
//     a call, nothing else; tools as vLLM's types print them. Engines that do not
//     use the template at all (DeepSeek V3.2 and V4, Kimi K3 and the harmony
//     format in vLLM, see [Template.Harmony]) differ: compare before use.
//   - Where versions of vLLM differ (the form of content for some templates, a
//     developer's message, an empty reasoning, results of tools as lists in
//     Anthropic's API), a request is refused, unless [Options] decide it.
//   - Dynamo's frontend ([Dynamo]): messages as given. Its template engine is
//     another one.
//   - Responses and Anthropic requests become chat completions, as in vLLM. What
//     lives in the server (stored responses, built-in tools) is refused, and so
//     are Responses requests to models of the harmony format.
//   - Images, audio and video: Prompt.Usable ends where the first one begins.
//
// It does no I/O and knows no clock. Start at [Compile].
package chat
