package tokenizer

// postprocessor reads what the file puts before and after a text's ids.
func (r *reader) postprocessor(t *Tokenizer, n *node) {
	if absent(n) {
		return
	}
	switch typ := r.typ(n); typ {
	case "":
	case "Sequence":
		r.only(n, "type", "processors")
		for i := range r.list(n, "processors") {
			r.postprocessor(t, &n.get("processors").items[i])
		}
	case "ByteLevel": // changes offsets only
		r.only(n, "type", "add_prefix_space", "trim_offsets", "use_regex")
	case "TemplateProcessing":
		r.only(n, "type", "single", "pair", "special_tokens")
		r.template(t, n)
	default:
		r.unsupported(n, "the post-processor", typ)
	}
}

// template reads a TemplateProcessing. Its template for pairs does not matter
// here. Hugging Face fails on one that follows another, or drops ids of it.
func (r *reader) template(t *Tokenizer, n *node) {
	if len(t.prefix)+len(t.suffix) > 0 {
		r.fail(n, "a second TemplateProcessing is not supported")
		return
	}
	special := r.need(n, "special_tokens", kindObject, "an object")
	var before, after []uint32
	seen := false
	for i := range r.list(n, "single") {
		piece := &n.get("single").items[i]
		if sequence := piece.get("Sequence"); sequence != nil {
			if r.only(piece, "Sequence"); seen || r.text(sequence, "id") != "A" {
				r.fail(piece, "the template does not hold its text once")
			}
			seen = true
			continue
		}
		r.only(piece, "SpecialToken")
		token := r.need(piece, "SpecialToken", kindObject, "an object")
		ids := r.specialIDs(special, token)
		if seen {
			after = append(after, ids...)
		} else {
			before = append(before, ids...)
		}
	}
	if !seen {
		r.fail(n, "the template does not hold its text once")
	}
	t.prefix, t.suffix = before, after
}

func (r *reader) specialIDs(special, token *node) []uint32 {
	name := r.text(token, "id")
	entry := special.get(name)
	if entry == nil {
		r.fail(token, "the template names a token that special_tokens does not have")
		return nil
	}
	r.only(entry, "id", "ids", "tokens")
	var ids []uint32
	for i := range r.list(entry, "ids") {
		item := &entry.get("ids").items[i]
		id, err := parseID([]byte(item.text))
		if err != nil || item.kind != kindNumber {
			r.fail(item, "a token id is not a whole number below 2^32")
		}
		ids = append(ids, id)
	}
	return ids
}
