package hook

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// maxEdits bounds how often one call is written anew.
const maxEdits = 20

// edited is the call as a person has written it in the answer to r, which is a call of its own: judged, shown and decided
// anew.
func (c Call) edited(a Agent, r approval.Request, resp *approval.Response) (next Call, edited bool, err error) {
	d := resp.Decision
	if resp.Status != approval.StatusOverridden || d.Code == nil || *d.Code != approval.CodeEdit || d.Override == nil || r.Editable == "" {
		return c, false, nil
	}
	if c.edits >= maxEdits {
		return c, false, fmt.Errorf("request %s was edited too often", approval.ShortID(r.RequestID))
	}
	fields, err := codec.Fields(c.Input)
	if err != nil {
		return c, false, err
	}
	for i, f := range fields {
		if f.Name == r.Editable {
			if fields[i].Value, err = json.Marshal(*d.Override); err != nil {
				return c, false, err
			}
		}
	}
	next = c
	next.Input, next.edits, next.before = codec.Object(fields), c.edits+1, r.RequestID
	next.UseID = c.UseID + "/" + strconv.Itoa(next.edits) + "/" + r.RequestID
	return next, true, nil
}
