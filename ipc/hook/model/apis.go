package model

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// messages is the API of Anthropic. Source: docs.anthropic.com, Messages and Streaming Messages.
func (s *Server) messages(w http.ResponseWriter, body []byte) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct{ Content json.RawMessage }
		Tools    []struct{ Name string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var results []string
	turns := 0
	for _, m := range in.Messages {
		var blocks []struct {
			Type    string
			Content any
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // a text alone
		}
		before := len(results)
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, text(b.Content))
			}
		}
		if len(results) > before {
			turns++
		}
	}
	var tools []string
	for _, t := range in.Tools {
		tools = append(tools, t.Name)
	}
	calls := s.turn(tools, results, turns)
	var blocks []any
	stop := "end_turn"
	for i, c := range calls {
		stop = "tool_use"
		blocks = append(blocks, object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", turns, i), "name": c.Tool, "input": json.RawMessage(c.Args)})
	}
	if len(calls) == 0 {
		blocks = append(blocks, object{"type": "text", "text": Done})
	}
	usage := object{"input_tokens": 1, "output_tokens": 1}
	message := object{"id": fmt.Sprintf("msg_%d", turns), "type": "message", "role": "assistant", "model": in.Model, "stop_sequence": nil, "usage": usage}
	if !in.Stream {
		message["content"], message["stop_reason"] = blocks, stop
		reply(w, message)
		return
	}
	out := newStream(w)
	message["content"], message["stop_reason"] = []any{}, nil
	out.send("message_start", object{"type": "message_start", "message": message})
	for i, b := range blocks {
		block, _ := b.(object)
		start, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": block["text"]}
		if block["type"] == "tool_use" {
			start = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
			args, _ := block["input"].(json.RawMessage)
			delta = object{"type": "input_json_delta", "partial_json": string(args)}
		}
		out.send("content_block_start", object{"type": "content_block_start", "index": i, "content_block": start})
		out.send("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": delta})
		out.send("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	out.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	out.send("message_stop", object{"type": "message_stop"})
}

// responses is the API of OpenAI. Source: platform.openai.com, Responses and its streaming events.
func (s *Server) responses(w http.ResponseWriter, body []byte) {
	var in struct {
		Stream bool
		Input  []struct {
			Type   string
			Output any
		}
		Tools []struct{ Type, Name string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var results []string
	turns, inTurn := 0, false
	for _, item := range in.Input {
		is := item.Type == "function_call_output" || item.Type == "custom_tool_call_output"
		if is {
			results = append(results, text(item.Output))
		}
		if is && !inTurn {
			turns++
		}
		inTurn = is
	}
	var tools []string
	for _, t := range in.Tools {
		if t.Name != "" {
			tools = append(tools, t.Name)
		}
	}
	var items []any
	calls := s.turn(tools, results, turns)
	for i, c := range calls {
		id := fmt.Sprintf("call_%d_%d", turns, i)
		item := object{"type": "function_call", "id": "fc_" + id, "call_id": id, "name": c.Tool, "arguments": c.Args, "status": "completed"}
		if c.In != "" {
			item["namespace"] = c.In
		}
		items = append(items, item)
	}
	if len(calls) == 0 {
		items = append(items, object{
			"type": "message", "id": fmt.Sprintf("msg_%d", turns), "role": "assistant", "status": "completed",
			"content": []any{object{"type": "output_text", "text": Done, "annotations": []any{}}},
		})
	}
	response := object{
		"id": fmt.Sprintf("resp_%d", turns), "object": "response", "status": "completed", "output": items,
		"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}
	if !in.Stream {
		reply(w, response)
		return
	}
	out := newStream(w)
	out.send("response.created", object{"type": "response.created", "response": object{"id": response["id"], "status": "in_progress"}})
	for i, item := range items {
		out.send("response.output_item.done", object{"type": "response.output_item.done", "output_index": i, "item": item})
	}
	out.send("response.completed", object{"type": "response.completed", "response": response})
}

// generate is the API of Gemini. Source: ai.google.dev, generateContent.
func (s *Server) generate(w http.ResponseWriter, body []byte, streaming bool) {
	var in struct {
		Contents []struct {
			Parts []struct{ FunctionResponse *struct{ Response any } }
		}
		Tools []struct{ FunctionDeclarations []struct{ Name string } }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var results []string
	turns := 0
	for _, c := range in.Contents {
		before := len(results)
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				results = append(results, text(p.FunctionResponse.Response))
			}
		}
		if len(results) > before {
			turns++
		}
	}
	var tools []string
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			tools = append(tools, f.Name)
		}
	}
	var parts []any
	calls := s.turn(tools, results, turns)
	for _, c := range calls {
		parts = append(parts, object{"functionCall": object{"name": c.Tool, "args": json.RawMessage(c.Args)}})
	}
	if len(calls) == 0 {
		parts = append(parts, object{"text": Done})
	}
	answer := object{
		"candidates":    []any{object{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": parts}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	if !streaming {
		reply(w, answer)
		return
	}
	newStream(w).send("", answer)
}
