package parity

import "github.com/warmpath/warmpath/pkg/prompt"

// Shape is a sort of request that takes its own way through a chat template.
type Shape uint8

// Shapes of requests. A request that fits several has the last of those.
const (
	// Chat is a chat of text messages.
	Chat Shape = iota
	// ChatOptions is a chat with fields that a template reads, such as
	// chat_template_kwargs or add_generation_prompt.
	ChatOptions
	// ChatReasoning is a chat whose messages hold earlier reasoning.
	ChatReasoning
	// ChatTools is a chat with tools, or with calls of them.
	ChatTools
	// ChatMedia is a chat with images or the like.
	ChatMedia
	// Completion is a text prompt.
	Completion
	// Other is a request of an API that engines render for nobody, such as
	// Responses: what holds for Chat holds for it.
	Other
	// NumShapes is the number of shapes.
	NumShapes = 7
)

// String returns the shape as a metric label.
func (s Shape) String() string {
	return [NumShapes]string{"chat", "chat_options", "chat_reasoning", "chat_tools", "chat_media", "completion", "other"}[s]
}

// ShapeOf returns the shape of a request whose body was scanned.
func ShapeOf(kind prompt.Kind, b *prompt.Body) Shape {
	switch {
	case kind == prompt.Completion:
		return Completion
	case kind != prompt.Chat:
		return Other
	case b.HasMedia:
		return ChatMedia
	case b.Features&prompt.HasTools != 0:
		return ChatTools
	case b.Features&prompt.HasReasoning != 0:
		return ChatReasoning
	case b.Features&prompt.HasOptions != 0:
		return ChatOptions
	default:
		return Chat
	}
}
