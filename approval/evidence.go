package approval

import (
	"cmp"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Evidence is what is known of a request besides its arguments: what the gate
// derives from them, and what the request's proof says. The zero Evidence means
// unknown, never safe.
type Evidence struct {
	Host  []HostFact `json:"host"`  // derived by the gate from the digested bytes
	Proof *Proof     `json:"proof"` // nil: the request came with none
}

// HostFact is a fact that the gate derived from the bytes that would run.
type HostFact struct {
	Domain  string   `json:"domain"` // mail, file, host, money, database, command, program …
	Op      string   `json:"op"`     // operation, from the tool's capability: send, read, write, …; "": unknown
	Name    string   `json:"name"`   // recipient, path, host, amount, table, target, program …
	Values  []string `json:"values"` // as written in the arguments; of a URL only the host
	Omitted int      `json:"left"`   // number of values left out: too many, too long, or not readable
	From    string   `json:"from"`   // template, argument, command, digest
}

// Sources of a HostFact.
const (
	FromTemplate = "template" // the operator's template of the tool, over request_data
	FromArgument = "argument" // a field that the operator declared
	FromCommand  = "command"  // the words of a command line
	FromDigest   = "digest"   // all of the arguments
)

// The domains of host facts. A proof may name others.
const (
	DomainMail     = "mail"
	DomainFile     = "file"
	DomainHost     = "host"
	DomainMoney    = "money"
	DomainDatabase = "database"
	DomainCommand  = "command" // a command line; its effects cannot be derived
	DomainProgram  = "program" // a program in the request; its effects cannot be derived
	DomainDigest   = "digest"
)

// The statuses of an effect in a proof.
const (
	EffectProven    = "proven"
	EffectNotProven = "not_proven"
	EffectUnknown   = "unknown"
)

// The coverage of a domain by a proof's contracts.
const (
	Covered        = "covered"
	RecommendedGap = "recommended_gap"
	RequiredGap    = "required_gap"
	SilentGap      = "silent_gap" // used, but no contract covers it
)

// Proof is what a request's proof says. Unless Verified it is the agent's claim:
// shown as such, and used by no rule.
type Proof struct {
	Verified      bool            `json:"verified"`     // signed by a configured prover, for the program that would run
	Why           Reason          `json:"why,omitzero"` // why it is not verified; none if it is
	Prover        string          `json:"prover"`       // the operator's name for the key; "" if not verified
	ProgramSHA256 string          `json:"program_sha256"`
	Program       string          `json:"program"` // its text; "" if not given
	Trusted       []string        `json:"trusted"` // functions that the prover did not check
	Contracts     []string        `json:"contracts"`
	Effects       []ProvenEffect  `json:"effects"`
	Coverage      []ProofCoverage `json:"coverage"`
}

// ProvenEffect is a certain or possible effect of a program.
type ProvenEffect struct {
	Domain string `json:"domain"`
	Op     string `json:"op"`
	Args   Raw    `json:"args"`   // an object, or null
	Status string `json:"status"` // proven, not_proven or unknown
}

// ProofCoverage says how far the contracts cover one domain.
type ProofCoverage struct {
	Domain  string   `json:"domain"`
	Status  string   `json:"status"` // covered, recommended_gap, required_gap, silent_gap
	Missing []string `json:"missing"`
}

// EvidenceOf derives the host facts of a request and checks its proof against
// provers. The tool is the zero Tool if the operator has configured none of that
// name.
func EvidenceOf(t Tool, r *Request, provers Provers) Evidence {
	return Evidence{Host: hostFacts(t, r), Proof: proofOf(t, r, provers)}
}

// RunsProgram says that the request itself contains the program or command line
// that runs. It may do anything, so only a verified proof limits it: host facts do
// not.
func (e Evidence) RunsProgram() bool {
	return slices.ContainsFunc(e.Host, func(h HostFact) bool { return h.Domain == DomainProgram || h.Domain == DomainCommand })
}

// Verified returns the proof if it is verified, else nil.
func (e Evidence) Verified() *Proof {
	if e.Proof == nil || !e.Proof.Verified {
		return nil
	}
	return e.Proof
}

// DomainEvidence is what is known of one domain, sorted by how reliable it is.
// Cards show it and rules use it.
type DomainEvidence struct {
	Domain          string          // in CanonicalDomain's form
	Verified        []ProvenEffect  // proven, by a proof that is verified
	Host            []HostFact      // derived by the gate from what would run
	Unknown         []ProvenEffect  // a verified proof names them without proving them
	Gaps            []ProofCoverage // uncovered parts, by a verified proof
	Covered         bool            // fully covered, by a verified proof
	Claimed         []ProvenEffect  // by the agent
	ClaimedCoverage []ProofCoverage // coverage claimed by the agent
}

// Known says that a verified proof covers the domain and leaves no effect and no
// required contract open.
func (d *DomainEvidence) Known() bool {
	if len(d.Unknown) > 0 || len(d.Verified) == 0 && !d.Covered {
		return false
	}
	return !slices.ContainsFunc(d.Gaps, func(g ProofCoverage) bool { return g.Status == RequiredGap })
}

// ByDomain sorts evidence into verified, host-derived, unknown and claimed. It
// returns one entry for each domain, sorted by name.
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
	"email": DomainMail, "e-mail": DomainMail, "mails": DomainMail, "emails": DomainMail,
	"fs": DomainFile, "files": DomainFile, "filesystem": DomainFile,
	"net": DomainHost, "network": DomainHost, "http": DomainHost, "hosts": DomainHost,
	"db": DomainDatabase, "sql": DomainDatabase, "payment": DomainMoney, "payments": DomainMoney,
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
func (x ProvenEffect) ValuesOf(arg string) (values []string, complete bool) {
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
