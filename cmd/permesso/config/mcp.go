package config

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

const serverHint = `[mcp.github] with argv = ["/usr/local/bin/github-mcp-server", "stdio"], or with url = "https://mcp.example.org/mcp"`

// mcpServers reads the MCP servers that the host runs or reaches. One without argv and url is served by a gateway beside
// the agent: only its tools are read, by serverTools.
func (s *section) mcpServers() {
	s.servers = map[string]approval.Handler{}
	s.each("mcp", func(name string, sub *section) {
		sub.checkName("MCP server", name)
		h := approval.Handler{
			Kind: approval.HandlerMCP, MCP: approval.MCP{Server: name},
			Argv: sub.texts("argv"), Dir: sub.text("dir"), Env: sub.texts("env"),
			MaxMemory: sub.number("max_memory"), MaxProcesses: int(sub.number("max_processes")), HTTP: sub.httpServer(),
		}
		isCommand, isHTTP := sub.has("argv"), sub.has("url")
		if isCommand {
			sub.checkArgv()
		}
		for _, key := range sub.node.order {
			switch row, _ := handlerKey(key); {
			case row.handler == approval.HandlerCommand && !isCommand:
				sub.fail(sub.node.children[key].key, key, serverHint, "%s belongs to a server with argv", key)
			case row.handler == approval.HandlerHTTP && !isHTTP:
				sub.fail(sub.node.children[key].key, key, serverHint, "%s belongs to a server with url", key)
			case key == "url" && isCommand:
				sub.fail(sub.node.children[key].key, key, "remove one of them", "a server has argv or url, not both")
			}
		}
		if !sub.failed && (isCommand || isHTTP) {
			sub.checkHandler(h)
		}
		s.servers[name] = h
	})
}

func handlerKey(name string) (Key, bool) {
	for _, k := range handlerKeys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// serverTools adds the tools that a gateway beside the agent serves.
func (s *section) serverTools() {
	s.each("mcp", func(server string, sub *section) {
		sub.each("tools", func(name string, at *section) {
			full := "mcp." + server + "." + name
			if other := s.toolAt[full]; other != nil {
				at.fail(at.node.key, "", "remove one of them", "tool %s is also in [%s]", quote(full), other.path)
				return
			}
			at.tool(full, approval.Handler{Kind: approval.HandlerAgent})
		})
	})
}

// callServer completes a handler that calls a tool of an MCP server.
func (s *section) callServer(h approval.Handler) approval.Handler {
	for _, key := range []string{"server", "tool"} {
		row, _ := s.row(key)
		s.require(s.node.key, row.Hint, "an mcp handler needs %s", key)
	}
	name := s.text("server")
	server, known := s.servers[name]
	switch {
	case !s.has("server"):
	case !known:
		s.fail(s.position("server"), "server", didYouMean(name, sortedKeys(s.servers), "add "+strings.Replace(serverHint, "github", tomlKey(name), 1)), "no MCP server %s", quote(name))
	case len(server.Argv) == 0 && server.HTTP.URL == "":
		s.fail(s.position("server"), "server", "add argv or url to [mcp."+name+"]", "MCP server %s has neither argv nor url: the host cannot reach it", quote(name))
	}
	server.MCP.Tool = s.text("tool")
	server.Timeout, server.MaxOutput, server.Idempotent = h.Timeout, h.MaxOutput, h.Idempotent
	return server
}
