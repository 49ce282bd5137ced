package httpapi

import (
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// strict reads and writes JSON as package approval does.
func strict() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			return json.MarshalWrite(w, v, json.FormatNilSliceAsNull(false), json.Deterministic(true), codec.Times())
		},
		Unmarshal: func(b []byte, v any) error {
			if into, ok := v.(*any); ok {
				return decodeLoosely(b, into)
			}
			return codec.Decode(b, v)
		},
	}
}

// decodeLoosely makes the copy for the validator. A number too large for a float becomes
// the largest float; the document itself keeps every digit.
func decodeLoosely(b []byte, into *any) error {
	var raw approval.Raw
	if err := codec.Decode(b, &raw); err != nil {
		return err
	}
	numbers := json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
		if d.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(t.String(), 64)
		if errors.Is(err, strconv.ErrRange) {
			f, err = math.Copysign(math.MaxFloat64, f), nil
		}
		*v = f
		return err
	})
	if err := json.Unmarshal(raw, into, json.WithUnmarshalers(numbers)); err != nil {
		return errors.New("not valid JSON")
	}
	return nil
}

// Object is a JSON object that keeps its bytes.
type Object struct{ jsontext.Value }

// Schema implements huma.SchemaProvider.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// Anything is any JSON value, null if absent.
type Anything struct{ jsontext.Value }

// Schema implements huma.SchemaProvider.
func (Anything) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "Any JSON value, or null."}
}

func anything(raw approval.Raw) Anything {
	if len(raw) == 0 {
		raw = approval.Raw("null")
	}
	return Anything{raw}
}
