package httpapi

import "net/http"

// Outcome is exported for the test of the document's table.
var Outcome = outcome

// About is the document's description.
var About = about

// Document is the OpenAPI document, without a server.
func Document(version string) []byte {
	s := &Server{Version: version}
	s.init()
	return spec(s.api(http.NewServeMux()))
}
