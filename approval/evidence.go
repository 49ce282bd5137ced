package approval

import (
	"cmp"
	"slices"
	"strings"
)

// Evidence is what is known of a request besides its arguments: what the gate
// derives from them by itself, and what a proof says that came with the request.
// The zero Evidence knows nothing, and nothing counts as unknown, never as safe.
type Evidence struct {
	Host  []HostFact `json:"host"`  // derived by the gate from the digested bytes
	Proof *Proof     `json:"proof"` // nil: the request came with none
}

// HostFact is something that the gate read out of the very bytes that would run:
// through the tool's template, from a command line, or from the digest.
type HostFact struct {
	Domain string   `json:"domain"` // what it touches: mail, file, host, money, database, command, program …
	Op     string   `json:"op"`     // what is done there, by the tool's capability: send, read, write, …; "": not known
	Name   string   `json:"name"`   // what the values are: recipient, path, host, amount, table, target, program …
	Values []string `json:"values"` // as they stand in the arguments; of a URL the host
	Left   int      `json:"left"`   // values that are not among Values: too many, too long, or not to be read
	From   string   `json:"from"`   // template, argument, command, digest
}

// Where the gate found a HostFact.
const (
	FromTemplate = "template" // the operator's template of the tool, over request_data
	FromArgument = "argument" // a field that the operator says is this
	FromCommand  = "command"  // a command line, word by word
	FromDigest   = "digest"   // all of the arguments
)

// The domains that the gate itself derives facts of. A proof may name others.
const (
	DomainMail     = "mail"
	DomainFile     = "file"
	DomainHost     = "host"
	DomainMoney    = "money"
	DomainDatabase = "database"
	DomainCommand  = "command" // a command line: what it touches, nobody can read off it
	DomainProgram  = "program" // a program that comes with the request: the same
	DomainDigest   = "digest"
)

// The three things that a proof can say of an effect.
const (
	EffectProven    = "proven"
	EffectNotProven = "not_proven"
	EffectUnknown   = "unknown"
)

// How far the contracts of a domain reach.
const (
	Covered        = "covered"
	RecommendedGap = "recommended_gap"
	RequiredGap    = "required_gap"
	SilentGap      = "silent_gap" // used, and no contract says anything of it
)

// Proof is what a request's proof says. Unless Verified it is a claim, the agent's
// own words: shown as such, and believed by no rule.
type Proof struct {
	Verified      bool            `json:"verified"` // signed by a configured prover, for the program that would run
	Why           string          `json:"why"`      // why it is only a claim; "" where it is verified
	Prover        string          `json:"prover"`   // the operator's name for the key; "" where it is a claim
	ProgramSHA256 string          `json:"program_sha256"`
	Program       string          `json:"program"` // its text, "" where it was not given
	Trusted       []string        `json:"trusted"` // functions that the prover takes on trust
	Contracts     []string        `json:"contracts"`
	Effects       []ProvenEffect  `json:"effects"`
	Coverage      []ProofCoverage `json:"coverage"`
}

// ProvenEffect is one effect that a program has, or may have.
type ProvenEffect struct {
	Domain string `json:"domain"`
	Op     string `json:"op"`
	Args   Raw    `json:"args"`   // an object, or null
	Status string `json:"status"` // proven, not_proven or unknown
}

// ProofCoverage says how far the contracts reach in one domain.
type ProofCoverage struct {
	Domain  string   `json:"domain"`
	Status  string   `json:"status"` // covered, recommended_gap, required_gap, silent_gap
	Missing []string `json:"missing"`
}

// EvidenceOf is all that is known of a request: what its bytes say through the
// tool's description, and its proof, held against the provers that the operator
// named. The tool is the zero Tool where the operator knows none of that name.
func EvidenceOf(t Tool, r *Request, provers Provers) Evidence {
	return Evidence{Host: hostFacts(t, r), Proof: proofOf(t, r, provers)}
}

// RunsProgram says that what runs is a program or a command line that came with
// the request. It may do anything, so arguments that the gate can read say
// nothing about what it will not do: only a verified proof does.
func (e Evidence) RunsProgram() bool {
	return slices.ContainsFunc(e.Host, func(h HostFact) bool { return h.Domain == DomainProgram || h.Domain == DomainCommand })
}

// Verified is the proof where it may be believed, else nil.
func (e Evidence) Verified() *Proof {
	if e.Proof == nil || !e.Proof.Verified {
		return nil
	}
	return e.Proof
}

// DomainEvidence is what is known of one domain, each thing under what it is
// worth. It is what people are shown and what rules go by.
type DomainEvidence struct {
	Domain   string          // in the form that CanonicalDomain gives
	Verified []ProvenEffect  // proven, by a proof that is verified
	Host     []HostFact      // read by the gate out of what would run
	Unknown  []ProvenEffect  // a verified proof names them and proves nothing of them
	Gaps     []ProofCoverage // a verified proof says where its contracts do not reach
	Covered  bool            // a verified proof says that they reach all of the domain
	Claimed  []ProvenEffect  // the agent's words
	Promised []ProofCoverage // the agent's words
}

// Known says that a verified proof speaks of the domain and leaves no effect and
// no required contract open there. Of a domain that no verified proof mentions
// nothing is known.
func (d *DomainEvidence) Known() bool {
	if len(d.Unknown) > 0 || len(d.Verified) == 0 && !d.Covered {
		return false
	}
	return !slices.ContainsFunc(d.Gaps, func(g ProofCoverage) bool { return g.Status == RequiredGap })
}

// ByDomain sorts evidence into what is verified, host-derived, unknown and
// claimed, one entry for each domain that anything speaks of, in the order of
// their names.
func (e Evidence) ByDomain() []DomainEvidence {
	all := map[string]*DomainEvidence{}
	at := func(domain string) *DomainEvidence {
		name := CanonicalDomain(domain)
		if all[name] == nil {
			all[name] = &DomainEvidence{Domain: name}
		}
		return all[name]
	}
	for _, h := range e.Host {
		d := at(h.Domain)
		d.Host = append(d.Host, h)
	}
	if e.Proof != nil {
		e.Proof.sort(at)
	}
	list := make([]DomainEvidence, 0, len(all))
	for _, d := range all {
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b DomainEvidence) int { return cmp.Compare(a.Domain, b.Domain) })
	return list
}

func (p *Proof) sort(at func(string) *DomainEvidence) {
	for _, x := range p.Effects {
		d := at(x.Domain)
		switch {
		case !p.Verified:
			d.Claimed = append(d.Claimed, x)
		case x.Status == EffectProven:
			d.Verified = append(d.Verified, x)
		default:
			d.Unknown = append(d.Unknown, x)
		}
	}
	for _, c := range p.Coverage {
		d := at(c.Domain)
		switch {
		case !p.Verified:
			d.Promised = append(d.Promised, c)
		case c.Status == Covered:
			d.Covered = true
		default:
			d.Gaps = append(d.Gaps, c)
		}
	}
}

// otherNames are words of provers for what is called otherwise here.
var otherNames = map[string]string{
	"email": DomainMail, "e-mail": DomainMail, "mails": DomainMail, "emails": DomainMail,
	"fs": DomainFile, "files": DomainFile, "filesystem": DomainFile,
	"net": DomainHost, "network": DomainHost, "http": DomainHost, "hosts": DomainHost,
	"db": DomainDatabase, "sql": DomainDatabase, "payment": DomainMoney, "payments": DomainMoney,
}

// CanonicalDomain is the one form of a domain's name: email, mail and Mail are
// the same.
func CanonicalDomain(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	return cmp.Or(otherNames[name], name)
}

// otherArgs are words for arguments that mean one of the gate's own.
var otherArgs = map[string]string{
	"to": factRecipient, "cc": factRecipient, "bcc": factRecipient, "address": factRecipient, "addresse": factRecipient,
	"file": factPath, "filename": factPath, "folder": factPath, "url": factHost, "uri": factHost,
}

// CanonicalArg is the one form of an argument's name: recipients, recipient, to,
// cc and bcc are the same, so that whoever asks about one of them hears of all.
func CanonicalArg(name string) string {
	name = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), "s")
	return cmp.Or(otherArgs[name], name)
}

// ValuesOf are the values of an argument of the effect, by its canonical name,
// lists flattened. whole is false where there is no such argument, or where
// something of it is no plain value: then there may be others.
func (x ProvenEffect) ValuesOf(arg string) (values []string, whole bool) {
	fields, err := Fields(x.Args)
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
