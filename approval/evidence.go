package approval

// Evidence is what is known of a request besides its arguments: what the gate
// derives from them by itself, and what a proof says that came with the request.
// The zero Evidence knows nothing, and nothing counts as unknown, never as safe.
type Evidence struct {
	Host  []HostFact `json:"host"`  // derived by the gate from the digested bytes
	Proof *Proof     `json:"proof"` // nil: the request came with none that can be read
}

// HostFact is something that the gate read out of the very bytes that would run:
// through the tool's template, from a command line, or from the digest.
type HostFact struct {
	Domain string   `json:"domain"` // what it touches: mail, file, host, money, command …
	Name   string   `json:"name"`   // what the values are: recipient, path, host, amount, program
	Values []string `json:"values"` // all of them, as they stand in the arguments
	From   string   `json:"from"`   // template, argument, command, digest
}

// The three things that a proof can say of an effect.
const (
	EffectProven    = "proven"
	EffectNotProven = "not_proven"
	EffectUnknown   = "unknown"
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
	Args   Raw    `json:"args"`
	Status string `json:"status"` // proven, not_proven or unknown; anything else counts as unknown
}

// ProofCoverage says how far the contracts reach in one domain.
type ProofCoverage struct {
	Domain  string   `json:"domain"`
	Status  string   `json:"status"` // covered, recommended_gap, required_gap, silent_gap
	Missing []string `json:"missing"`
}
