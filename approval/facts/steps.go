package facts

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// OfStep derives the host facts of one call of a program. An argument whose value is not known yet gives a fact with a
// value left out, and so does a call that is not described: nothing can be proven of what it may touch.
func OfStep(t approval.Tool, c *approval.Call) approval.Evidence {
	family, op, _ := strings.Cut(t.Capability, ":")
	host := hostFacts(t, &approval.Request{ToolName: t.Name, RequestData: c.Data})
	leftOut := func(domain, name string) {
		host = append(host, approval.HostFact{Domain: domain, Op: op, Name: name, Omitted: 1, From: FromArgument})
	}
	for _, ref := range c.Opaque {
		for _, fact := range factTypes {
			if slices.Contains(fact.types, t.Args[ref.Arg].Type) {
				leftOut(domainOf(fact.name, t.Capability), fact.name)
			}
		}
	}
	capability, has := CapabilityNamed(t.Capability)
	domain, name := family, factRecipient
	switch {
	case !has:
		domain, name = Program, "program_sha256"
	case capability.TargetKind == "path_glob":
		domain, name = File, factPath
	case capability.TargetKind == "host":
		domain, name = Host, factHost
	}
	described := func(h approval.HostFact) bool {
		return h.Domain == Command || h.Domain == Program || (h.Domain == domain || !has) && h.From != FromDigest
	}
	if capability.TargetKind != "none" && !slices.ContainsFunc(host, described) {
		leftOut(domain, name)
	}
	return approval.Evidence{Host: host}
}

// ProgramEvidence is what is known of a program: the host facts of all its steps, in their order.
func ProgramEvidence(each []approval.Evidence) (all approval.Evidence) {
	for i := range each {
		for _, h := range each[i].Host {
			h.Step = i + 1
			all.Host = append(all.Host, h)
		}
	}
	return all
}
