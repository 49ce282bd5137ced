package receipt

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// CheckSubset checks that a receipt covers the arguments used, which may be a part of the
// approved ones: the receipt is of those, it is for no tool, and used differs from them only
// in the lists that the receipt names. Of such a list it has at least one element, and no
// other ones than the approved list, in the same order, byte for byte. Every other member is
// there with the same bytes: without it the action could be another one. The error wraps
// ErrOther. Parse has verified f.
func CheckSubset(f approval.ReceiptFacts, approved, used []byte) error {
	if f.Tool != "" || f.ArgsSubset == "" {
		return fmt.Errorf("%w: it covers only the approved arguments, no part of them", ErrOther)
	}
	if approval.Digest(approved) != f.ArgsSHA256 {
		return fmt.Errorf("%w: another set of arguments was approved", ErrOther)
	}
	var names []string
	if err := json.Unmarshal([]byte(f.ArgsSubset), &names); err != nil {
		return fmt.Errorf("%w: args_subset is no list of names", ErrOther)
	}
	whole, err := members(approved)
	if err != nil {
		return err
	}
	part, err := members(used)
	if err != nil {
		return err
	}
	if len(part) != len(whole) {
		return fmt.Errorf("%w: the arguments do not have the approved members", ErrOther)
	}
	for _, w := range whole {
		i := slices.IndexFunc(part, func(p codec.Field) bool { return p.Name == w.Name })
		if i < 0 || !bytes.Equal(part[i].Value, w.Value) && (!slices.Contains(names, w.Name) || !isPart(part[i], w)) {
			return fmt.Errorf("%w: argument %q is not what was approved", ErrOther, w.Name)
		}
	}
	return nil
}

// members reads an object strictly: no name stands twice.
func members(object []byte) ([]codec.Field, error) {
	var strict approval.Raw
	if err := codec.Decode(object, &strict); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOther, err)
	}
	fields, err := codec.Fields(strict)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOther, err)
	}
	return fields, nil
}

// isPart reports whether the elements of one list are some of another's, in its order.
func isPart(part, whole codec.Field) bool {
	some, err := codec.Items(part.Value)
	all, errAll := codec.Items(whole.Value)
	if err != nil || errAll != nil || len(some) == 0 {
		return false
	}
	for _, item := range some {
		i := slices.IndexFunc(all, func(a approval.Raw) bool { return bytes.Equal(a, item) })
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}
