package policy

import (
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// traits are the four properties of one request, with what was left unstated
// filled in.
type traits struct {
	source, secret, sink, dangerous approval.Property
	reads, writes                   bool
}

const (
	isTrue    approval.Property = "true"
	isFalse   approval.Property = "false"
	forbidden approval.Property = "forbidden"
)

// traitsOf fills in what the operator left unstated: true, unless the
// capability implies less. What is neither known nor named reads and writes.
func traitsOf(f *approval.Facts) traits {
	t := traits{
		source: f.Trust.PublicSource, secret: f.Trust.SecretData,
		sink: f.Trust.PublicSink, dangerous: f.Trust.DangerousWrites,
	}
	c, ok := approval.CapabilityNamed(f.Capability)
	none := ok && c.Default == approval.AskNone
	read := ok && isRead(c.Name)
	unstated := func(p *approval.Property, implied bool) {
		switch *p {
		case isTrue, isFalse, forbidden:
		case "":
			*p = isFalse
			if implied {
				*p = isTrue
			}
		default:
			*p = forbidden // no such property
		}
	}
	unstated(&t.source, !none)
	unstated(&t.secret, !none)
	unstated(&t.sink, !none && !read)
	unstated(&t.dangerous, !none && !read)
	t.reads = !ok || none || read || readsAndWrites(c.Name)
	t.writes = !ok || !none && !read
	return t
}

func isRead(capability string) bool {
	return slices.Contains([]string{"fs:read", "mail:read", "calendar:read", "time:read"}, capability)
}

// readsAndWrites are capabilities whose answer comes from where the request
// went.
func readsAndWrites(capability string) bool {
	return slices.Contains([]string{"code:exec", "network:http", "llm:online"}, capability)
}

// forbids names the forbidden property that this request would use, if any.
func (t traits) forbids() (property, action string) {
	switch {
	case t.reads && t.source == forbidden:
		return "public_source", "reading from"
	case t.reads && t.secret == forbidden:
		return "secret_data", "reading from"
	case t.writes && t.sink == forbidden:
		return "public_sink", "writing to"
	case t.writes && t.dangerous == forbidden:
		return "dangerous_writes", "writing to"
	}
	return "", ""
}

// taints is what running the request adds to its client.
func (t traits) taints() []string {
	var add []string
	if t.reads && t.source == isTrue {
		add = append(add, approval.TaintCorruption)
	}
	if t.reads && t.secret == isTrue {
		add = append(add, approval.TaintSecret)
	}
	return add
}

// asks says which of trust's two reasons to ask a person applies.
func (t traits) asks(tainted map[string]bool) (dangerous, trifecta bool) {
	if !t.writes {
		return false, false
	}
	trifecta = tainted[approval.TaintCorruption] && tainted[approval.TaintSecret] && t.sink == isTrue
	return t.dangerous == isTrue, trifecta
}

// ReadsPublicSource says whether running a tool may bring in what strangers wrote.
func ReadsPublicSource(t approval.Tool) bool {
	tr := traitsOf(&approval.Facts{Tool: t.Name, KnownTool: true, Capability: t.Capability, Trust: t.Trust})
	return tr.reads && tr.source == isTrue
}
