package telegram

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
)

// formOf reads the parameters of the library's request.
func formOf(req *http.Request) (url.Values, error) {
	if req.Body == nil {
		return url.Values{}, nil
	}
	defer req.Body.Close()
	in := req.Clone(req.Context())
	in.Body = io.NopCloser(io.LimitReader(req.Body, maxPollForm))
	if err := in.ParseMultipartForm(maxPollForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return nil, err
	}
	return in.PostForm, nil
}

// withForm returns req with other parameters.
func withForm(req *http.Request, form url.Values) *http.Request {
	out := req.Clone(req.Context())
	body := []byte(form.Encode())
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.ContentLength = int64(len(body))
	out.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return out
}

// setBody makes the response one of these updates.
func setBody(resp *http.Response, updates []json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"ok": true, "result": updates})
	if err == nil {
		replaceBody(resp, body)
	}
	return err
}

func replaceBody(resp *http.Response, body []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length")
}
