// Package skeleton renders a chat template without the texts in it.
//
// Most of what a template prints are the contents of messages, as they are. So
// the same few templates of conversations come again and again: only contents
// differ. This package gives the template a short atom in place of each content
// and keeps what it printed: the skeleton. The next conversation of the same
// form is then the skeleton with its own contents put in.
//
// That is exact, not a guess. An atom stands for a text x, and for every value v
// in the template there is the value v' with atoms such that putting the texts
// in place of the atoms turns v' into v. Joining, printing, passing on and
// asking for a type keep that true whatever x is. Looking for a literal and
// stripping keep it true because of how contents are cut into atoms (see
// split). Every other operation is rewritten so that it fails when an atom
// reaches it (see rewrite); the template is then rendered as usual.
//
// Start at [New].
package skeleton
