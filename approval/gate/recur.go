package gate

import "github.com/permesso-dev/permesso/approval"

// recurrence says how often people approved the same kind of thing: same
// workspace, same capability (or tool, where there is none), same target.
func (g *Gate) recurrence(ws string, f approval.Facts) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.recur[recurKey(ws, f.Capability, f.Tool, f.Target)]
}

func (g *Gate) countApproval(rec *approval.Record) {
	p, err := openedPending(g.Seal, approval.Key{Workspace: rec.Workspace, ID: rec.RequestID}, rec.Pending)
	if err != nil {
		return // the count only shapes the card
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recur[recurKey(rec.Workspace, p.Capability, p.ToolName, p.Target)]++
}

func recurKey(ws, capability, tool, target string) string {
	if capability == "" {
		capability = "tool " + tool
	}
	return ws + "\x00" + capability + "\x00" + target
}

func openedPending(seal Sealer, k approval.Key, b []byte) (*approval.Pending, error) {
	body, err := seal.Open(approval.DocPending, k, b)
	if err != nil {
		return nil, err
	}
	return approval.ParsePending(body, k)
}
