// Package facts derives from a request what the gate knows of it besides the agent's
// words: facts of the arguments that would run, proofs of provers that the operator
// named, and what is known of each domain. It also has the closed set of capabilities and
// the templates over a request's arguments. It is pure.
package facts

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Sources of a HostFact.
const (
	FromTemplate = "template" // the operator's template of the tool, over request_data
	FromArgument = "argument" // a field that the operator declared
	FromCommand  = "command"  // the words of a command line
	FromDigest   = "digest"   // all of the arguments
)

// The domains of host facts. A proof may name others.
const (
	Mail     = "mail"
	File     = "file"
	Host     = "host"
	Money    = "money"
	Database = "database"
	Command  = "command" // a command line; its effects cannot be derived
	Program  = "program" // a program in the request; its effects cannot be derived
	Digest   = "digest"
)

// The statuses of an effect in a proof.
const (
	Proven    = "proven"
	NotProven = "not_proven"
	Unknown   = "unknown"
)

// The coverage of a domain by a proof's contracts.
const (
	Covered        = "covered"
	RecommendedGap = "recommended_gap"
	RequiredGap    = "required_gap"
	SilentGap      = "silent_gap" // used, but no contract covers it
)

// Of derives the host facts of a request and checks its proof against
// provers. The tool is the zero Tool if the operator has configured none of that
// name. At the zero time every proof has expired.
func Of(t approval.Tool, r *approval.Request, provers Provers, now time.Time) approval.Evidence {
	return approval.Evidence{Host: hostFacts(t, r), Proof: proofOf(t, r, provers, now)}
}

// RunsProgram says that the request itself contains the program or command line
// that runs. It may do anything, so only a verified proof limits it: host facts do
// not.
func RunsProgram(e approval.Evidence) bool {
	return slices.ContainsFunc(e.Host, func(h approval.HostFact) bool {
		return h.Domain == Program || h.Domain == Command
	})
}

// Domain is what is known of one domain, sorted by how reliable it is.
// Cards show it and rules use it.
type Domain struct {
	Domain          string                   // in CanonicalDomain's form
	Verified        []approval.ProvenEffect  // proven, by a proof that is verified
	Host            []approval.HostFact      // derived by the gate from what would run
	Unknown         []approval.ProvenEffect  // a verified proof names them without proving them
	Gaps            []approval.ProofCoverage // uncovered parts, by a verified proof
	Covered         bool                     // fully covered, by a verified proof
	Claimed         []approval.ProvenEffect  // by the agent
	ClaimedCoverage []approval.ProofCoverage // coverage claimed by the agent
}

// Known says that a verified proof covers the domain and leaves no effect and no
// required contract open.
func (d *Domain) Known() bool {
	if len(d.Unknown) > 0 || len(d.Verified) == 0 && !d.Covered {
		return false
	}
	return !slices.ContainsFunc(d.Gaps, func(g approval.ProofCoverage) bool { return g.Status == RequiredGap })
}

// ByDomain sorts evidence into verified, host-derived, unknown and claimed. It
// returns one entry for each domain, sorted by name.
func ByDomain(e approval.Evidence) []Domain {
	all := map[string]*Domain{}
	at := func(domain string) *Domain {
		name := CanonicalDomain(domain)
		if all[name] == nil {
			all[name] = &Domain{Domain: name}
		}
		return all[name]
	}
	for _, h := range e.Host {
		d := at(h.Domain)
		d.Host = append(d.Host, h)
	}
	if e.Proof != nil {
		sortProof(e.Proof, at)
	}
	list := make([]Domain, 0, len(all))
	for _, d := range all {
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b Domain) int { return cmp.Compare(a.Domain, b.Domain) })
	return list
}

func sortProof(p *approval.Proof, at func(string) *Domain) {
	for _, x := range p.Effects {
		d := at(x.Domain)
		switch {
		case !p.Verified:
			d.Claimed = append(d.Claimed, x)
		case x.Status == Proven:
			d.Verified = append(d.Verified, x)
		default:
			d.Unknown = append(d.Unknown, x)
		}
	}
	for _, c := range p.Coverage {
		d := at(c.Domain)
		switch {
		case !p.Verified:
			d.ClaimedCoverage = append(d.ClaimedCoverage, c)
		case c.Status == Covered:
			d.Covered = true
		default:
			d.Gaps = append(d.Gaps, c)
		}
	}
}

// domainAliases maps names that provers use to the gate's domains.
var domainAliases = map[string]string{
	"email": Mail, "e-mail": Mail, "mails": Mail, "emails": Mail,
	"fs": File, "files": File, "filesystem": File,
	"net": Host, "network": Host, "http": Host, "hosts": Host,
	"db": Database, "sql": Database, "payment": Money, "payments": Money,
}

// CanonicalDomain is the canonical form of a domain's name: email, mail and Mail
// are the same.
func CanonicalDomain(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	return cmp.Or(domainAliases[name], name)
}

// argAliases maps names of arguments to the gate's fact names.
var argAliases = map[string]string{
	"to": factRecipient, "cc": factRecipient, "bcc": factRecipient, "address": factRecipient, "addresse": factRecipient,
	"file": factPath, "filename": factPath, "folder": factPath, "url": factHost, "uri": factHost,
}

// CanonicalArg is the canonical form of an argument's name. recipients, recipient,
// to, cc and bcc are the same, so a rule about one covers all.
func CanonicalArg(name string) string {
	name = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), "s")
	return cmp.Or(argAliases[name], name)
}

// ValuesOf returns the values of an argument by its canonical name, lists
// flattened. complete is false if there is no such argument, or if part of it is
// not a plain value: then more values may exist.
func ValuesOf(x approval.ProvenEffect, arg string) (values []string, complete bool) {
	fields, err := codec.Fields(x.Args)
	if err != nil {
		return nil, false
	}
	found, open := false, false
	for _, f := range fields {
		if CanonicalArg(f.Name) != CanonicalArg(arg) {
			continue
		}
		found = true
		list, left := flatten(f.Value)
		values, open = append(values, list...), open || left > 0
	}
	return values, found && !open
}
