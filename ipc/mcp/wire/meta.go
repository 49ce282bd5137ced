package wire

import (
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Members of _meta by which a request of 2026-07-28 says from whom it is.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClient       = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// withMeta adds the members of _meta that are missing.
func (c *Conn) withMeta(version string, params approval.Raw) (approval.Raw, error) {
	meta, _, err := Member(params, "_meta")
	if err != nil {
		return nil, err
	}
	for _, add := range []codec.Field{{Name: MetaVersion, Value: codec.Quote(version)}, {Name: MetaClient, Value: c.o.Client}, {Name: MetaCapabilities, Value: c.o.Capabilities}} {
		_, has, err := Member(meta, add.Name)
		if err == nil && !has {
			meta, err = With(meta, add.Name, add.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return With(params, "_meta", meta)
}

// Member is the value of an object's member, verbatim. No bytes are an object without members.
func Member(object approval.Raw, name string) (value approval.Raw, has bool, err error) {
	fields, err := fieldsOf(object)
	for _, f := range fields {
		if f.Name == name {
			return f.Value, true, err
		}
	}
	return nil, false, err
}

// With is the object with a member set, or without it if value is empty. All other values keep their bytes and their order.
func With(object approval.Raw, name string, value approval.Raw) (approval.Raw, error) {
	fields, err := fieldsOf(object)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == name })
	switch {
	case at >= 0 && len(value) == 0:
		fields = slices.Delete(fields, at, at+1)
	case at >= 0:
		fields[at].Value = value
	case len(value) > 0:
		fields = append(fields, codec.Field{Name: name, Value: value})
	}
	return codec.Object(fields), nil
}

func fieldsOf(object approval.Raw) ([]codec.Field, error) {
	if len(object) == 0 {
		return nil, nil
	}
	return codec.Fields(object)
}
