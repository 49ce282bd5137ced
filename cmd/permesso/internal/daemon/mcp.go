package daemon

import (
	"errors"
	"net/http"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/mcp"
	"github.com/permesso-dev/permesso/ipc/service"
)

// permit is a call of Claude Code in a folder that is not known here.
func permit(client, tool string, input approval.Raw) (approval.Request, error) {
	return hook.PermissionPrompt(client, tool, input, "")
}

// newMCP serves the Model Context Protocol to the clients of the HTTP API.
func (s *server) newMCP(requests *service.Service) http.Handler {
	var mu sync.Mutex
	books := map[string]*mcp.Book{} // by client
	book := func(client string) (*mcp.Book, error) {
		mu.Lock()
		defer mu.Unlock()
		if b := books[client]; b != nil {
			return b, nil
		}
		b, err := mcp.OpenBook(s.Layout.MCP(client))
		if err == nil {
			books[client] = b
		}
		return b, err
	}
	return mcp.Handler(s.app.Version, func(r *http.Request) (*mcp.Server, error) {
		c := httpapi.ClientFrom(r.Context())
		if c == nil {
			return nil, errors.New("no client")
		}
		b, err := book(c.ID)
		if err != nil {
			s.log.Warn().Err(err).Msg("MCP by HTTP")
			return nil, errors.New("the gate cannot keep what is asked: see the daemon's log")
		}
		server := &mcp.Server{
			Waiter: &mcp.Waiter{Gate: mcp.Local{Service: requests, Client: c}, Book: b}, Version: s.app.Version, Permit: permit,
			Notify: s.Current().Elicitation == config.ElicitNotify,
		}
		if base := s.ui.BaseURL; base != "" {
			server.Page = func(id string) string { return base + "/r/" + c.Workspace + "/" + id }
		}
		return server, nil
	})
}
