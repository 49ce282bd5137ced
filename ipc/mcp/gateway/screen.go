package gateway

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// screen decides about a request of the server to the client, whose capabilities these are, and returns its parameters as
// the client gets them.
func (g *Gateway) screen(method string, params, caps approval.Raw) (approval.Raw, error) {
	of, known := map[string]struct {
		capability string
		passes     bool
	}{
		"elicitation/create":     {"elicitation", true},
		"sampling/createMessage": {"sampling", g.o.Sampling},
		"roots/list":             {"roots", g.o.Roots},
	}[method]
	switch {
	case !known:
		return nil, refuse(jsonrpc.CodeMethodNotFound, "no request of a server is known by this name")
	case !of.passes:
		return nil, refuse(jsonrpc.CodeMethodNotFound, "%s is not passed on by the gateway: its configuration does not allow it", of.capability)
	}
	if _, has, err := wire.Member(caps, of.capability); err != nil || !has {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "the client has no %s", of.capability)
	}
	if method != "elicitation/create" {
		return params, nil
	}
	var p struct {
		Mode string       `json:"mode"`
		URL  approval.Raw `json:"url"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, refuse(jsonrpc.CodeInvalidParams, "%v", err)
	}
	switch {
	case p.Mode == "url" || p.URL != nil: // a client could read either
		params, _, err := screenURL(params)
		return params, err
	case p.Mode == "" || p.Mode == "form":
		return params, nil
	}
	return nil, refuse(jsonrpc.CodeInvalidParams, "the mode %.40q of elicitation is not known here", p.Mode)
}

// screenURL puts the host of an elicitation's URL before its message: the person sees where it leads whatever the server
// writes.
func screenURL(params approval.Raw) (_ approval.Raw, host string, err error) {
	var p struct {
		URL     string `json:"url"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, "", refuse(jsonrpc.CodeInvalidParams, "url and message must be strings")
	}
	scheme, _, _ := strings.Cut(p.URL, "://")
	place := facts.PlaceOf(p.URL)
	switch {
	case !strings.EqualFold(scheme, "https") && !strings.EqualFold(scheme, "http"):
		return nil, "", refuse(jsonrpc.CodeInvalidParams, "the URL of an elicitation must be one of http or https")
	case place.Host == "" || place.Odd || show(p.URL) != p.URL:
		return nil, "", refuse(jsonrpc.CodeInvalidParams, "the URL of an elicitation has no host that every reader takes for the same")
	}
	message := fmt.Sprintf("[The server asks to open a page at %s%s] %s", place.Host, warning(place), p.Message)
	params, err = wire.With(params, "message", quote(message))
	return params, place.Host, err
}

// warning tells what is not obvious in a host's name.
func warning(p facts.Place) string {
	switch {
	case p.IP:
		return ", an address without a name"
	case !p.Punycode:
		return ""
	case p.Unicode == "":
		return ", a name in another alphabet that cannot be read"
	}
	for label := range strings.SplitSeq(p.Unicode, ".") {
		if mixed(label) {
			return fmt.Sprintf(", which is shown as %s and mixes alphabets", show(p.Unicode))
		}
	}
	return fmt.Sprintf(", which is shown as %s", show(p.Unicode))
}

// mixed tells whether a word has letters of more than one script.
func mixed(word string) bool {
	found := ""
	for _, r := range word {
		if !unicode.IsLetter(r) {
			continue
		}
		for name, table := range unicode.Scripts {
			if unicode.Is(table, r) {
				if found != "" && found != name {
					return true
				}
				found = name
			}
		}
	}
	return false
}

// inputRequest is one question of input_required.
type inputRequest struct {
	key    string
	method string
	params approval.Raw
}

// inputs reads the questions of input_required, screened for a client with these capabilities.
func (g *Gateway) inputs(result, caps approval.Raw) ([]inputRequest, error) {
	raw, has, err := wire.Member(result, "inputRequests")
	if err != nil || !has {
		return nil, err
	}
	fields, err := codec.Fields(raw)
	if err != nil || len(fields) > maxInputs {
		return nil, fmt.Errorf("the server's inputRequests are no object of at most %d questions", maxInputs)
	}
	list := make([]inputRequest, len(fields))
	for i, f := range fields {
		var r struct {
			Method string       `json:"method"`
			Params approval.Raw `json:"params"`
		}
		if err := json.Unmarshal(f.Value, &r); err != nil {
			return nil, fmt.Errorf("the server's inputRequests: %w", err)
		}
		params, err := g.screen(r.Method, r.Params, caps)
		if err != nil {
			return nil, fmt.Errorf("the server asks for what it cannot have: %w", err)
		}
		list[i] = inputRequest{f.Name, r.Method, params}
	}
	return list, nil
}

// maxInputs is how many questions a server may ask at once.
const maxInputs = 64

// inputRequests writes questions as a member of input_required.
func inputRequests(list []inputRequest) (approval.Raw, error) {
	var all approval.Raw
	for _, r := range list {
		one, err := wire.With(approval.Raw(`{"method":`+string(quote(r.method))+`}`), "params", r.params)
		if err == nil {
			all, err = wire.With(all, r.key, one)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
