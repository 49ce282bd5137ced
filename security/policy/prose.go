package policy

import (
	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// exactProse is the digest of a release-only exec_cmd that has no request_data: its command
// is in the preview, which the person was shown, and which this host does not run. It is ""
// for any other request.
func exactProse(f *approval.Facts) string {
	if f.Tool != "" || !onlyAgain(f) || f.Agent.Preview == "" {
		return ""
	}
	if fields, err := codec.Fields(f.Args); err != nil || len(fields) > 0 {
		return ""
	}
	return digestWords([]string{"title", f.Agent.Title, "preview", f.Agent.Preview}, nil)
}
