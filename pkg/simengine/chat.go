package simengine

// ChatTokens returns the tokens that a simulated worker computes for a chat:
// pairs of role and content, and the start of an answer where one is asked for.
// Load generators use it to know what a perfect cache would hold.
func ChatTokens(chat [][2]string, addGenerationPrompt bool) []uint32 {
	messages := make([]message, len(chat))
	for i, m := range chat {
		messages[i] = message{role: m[0], content: m[1]}
	}
	return appendTokens(nil, renderChat(messages, addGenerationPrompt))
}
