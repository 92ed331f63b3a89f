package prompt

// frame is where something lies in a body, in bytes. The zero value is nowhere.
type frame struct{ start, end int }

// Fields beside the prompt that say how it begins, in the order in which they count
// as text before it. Templates differ in where they print tools. Before all else
// is the safe place: what differs there makes all that follows different.
const (
	aheadEarlier = iota // what an engine keeps of an earlier response
	aheadConversation
	aheadTemplate
	aheadTemplateArgs
	aheadDocuments
	aheadEffort
	aheadFormat
	aheadCut
	aheadSpecial
	aheadTools
	aheadFunctions
	aheadInstructions
	aheadSystem
	numAhead
)

// aheadOf returns which of these fields a key of the body is, numAhead for none.
func aheadOf(key []byte) int {
	switch string(key) {
	case "previous_response_id":
		return aheadEarlier
	case "conversation":
		return aheadConversation
	case "chat_template":
		return aheadTemplate
	case "chat_template_kwargs":
		return aheadTemplateArgs
	case "documents":
		return aheadDocuments
	case "reasoning_effort":
		return aheadEffort
	case "response_format":
		return aheadFormat
	case "truncate_prompt_tokens":
		return aheadCut
	case "add_special_tokens":
		return aheadSpecial
	case "tools":
		return aheadTools
	case "functions":
		return aheadFunctions
	case "instructions":
		return aheadInstructions
	case "system":
		return aheadSystem
	default:
		return numAhead
	}
}

// AppendText appends to dst the pieces of a scanned body that together stand for
// its prompt, as far as it is text, and returns the extended slice: the fields that
// say how it begins, with their keys, then the prompt as it is written. Two bodies
// whose pieces begin alike have prompts that begin alike, as far as bodies can tell;
// the converse is not true.
//
// The text ends before the first message with media, since some templates print
// images before a message's text. A body without a prompt that can be read has none.
func (b *Body) AppendText(dst [][]byte, body []byte) [][]byte {
	start, end := b.Start, b.textEnd()
	if b.Form == NoPrompt || end <= start {
		return dst
	}
	for _, f := range b.ahead {
		if f.end > f.start {
			dst = append(dst, body[f.start:f.end])
		}
	}
	return append(dst, body[start:end])
}

// TextSize is the length of what AppendText appends, in bytes, and rest that of
// the prompt after it.
func (b *Body) TextSize() (text, rest int) {
	if b.Form == NoPrompt {
		return 0, b.End - b.Start
	}
	for _, f := range b.ahead {
		text += f.end - f.start
	}
	return text + b.textEnd() - b.Start, b.End - b.textEnd()
}

func (b *Body) textEnd() int {
	if b.mediaAt > 0 {
		return b.mediaAt
	}
	return b.End
}
