package approval

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
	// Currency of amounts: a code, or what the argument that names it says. "": unknown
	Currency string `json:"currency,omitzero"`
	Step     int    `json:"step,omitzero"` // of a program's evidence: the step whose fact it is, from 1
}

// Proof is what a request's proof says. Unless Verified it is the agent's claim:
// shown as such, and used by no rule.
type Proof struct {
	Verified      bool            `json:"verified"`     // signed by a configured prover, for the tool and the arguments that would run, and not expired at intake
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

// Verified returns the proof if it is verified, else nil.
func (e Evidence) Verified() *Proof {
	if e.Proof == nil || !e.Proof.Verified {
		return nil
	}
	return e.Proof
}
