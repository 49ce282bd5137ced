package httpapi

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval"
)

// ReceiptBody is a receipt, and what it is to be good for.
type ReceiptBody struct {
	Receipt     string `json:"receipt" maxLength:"16384" doc:"The signed note, as it came."`
	ToolName    string `json:"tool_name,omitempty" maxLength:"64" doc:"Demand that it is for this tool."`
	RequestData Object `json:"request_data,omitzero" doc:"Demand that it is for these arguments, byte for byte."`
	ArgsSHA256  string `json:"args_sha256,omitempty" pattern:"^[0-9a-f]{64}$" doc:"The same by their SHA-256."`
	Late        bool   `json:"allow_expired,omitempty" doc:"Verify it also when it is older than its five minutes."`
}

// Facts is what a receipt says.
type Facts struct {
	Valid        bool      `json:"valid"`
	Why          *string   `json:"why" doc:"Why it is not valid."`
	ApprovalID   string    `json:"approval_id"`
	ToolName     string    `json:"tool_name"`
	ActionType   string    `json:"action_type"`
	ArgsSHA256   string    `json:"args_sha256"`
	DecisionType string    `json:"decision_type"`
	By           string    `json:"by"`
	Via          string    `json:"via"`
	Rule         string    `json:"rule"`
	Issued       time.Time `json:"issued"`
	Expires      time.Time `json:"expires"`
}

type (
	paperIn  struct{ Body ReceiptBody }
	factsOut struct{ Body Facts }
)

func (s *Server) receipts(api huma.API) {
	look := []string{approval.MayRead, approval.MayRequest}
	register(api, op("verify-receipt", http.MethodPost, "/v1/receipts/verify", "Check a receipt",
		"A receipt that this gate signed and that is not good for what is demanded is valid: false, with the reason. What it never signed is 422; another workspace's, or another client's, is 404.",
		look, http.StatusNotFound), s.verify)
	register(api, op("redeem-receipt", http.MethodPost, "/v1/receipts/redeem", "Check a receipt and use it up",
		"The second time is 409. It needs the record of its request: before that is written it is 409 as well.",
		look, http.StatusNotFound, http.StatusConflict), s.redeem)
}

func (s *Server) verify(ctx context.Context, k *approval.APIKey, in *paperIn) (*factsOut, error) {
	f, wish, err := s.paper(ctx, k, &in.Body)
	if err != nil {
		return nil, err
	}
	out := &factsOut{factsOf(f)}
	if err := s.Receipts.Verify(wish); err != nil {
		out.Body.Valid, out.Body.Why = false, some(err.Error())
	}
	return out, nil
}

func (s *Server) redeem(ctx context.Context, k *approval.APIKey, in *paperIn) (*factsOut, error) {
	in.Body.Late = false
	f, wish, err := s.paper(ctx, k, &in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.Receipts.Verify(wish); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, err.Error())
	}
	switch err := s.Receipts.Redeem(ctx, f, "key "+k.ID); {
	case errors.Is(err, fs.ErrExist):
		return nil, problem(http.StatusConflict, "this receipt was redeemed before")
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem(http.StatusConflict, "the record of this request is not written yet")
	case err != nil:
		return nil, s.broken("redeem", err)
	}
	return &factsOut{factsOf(f)}, nil
}

// paper is a receipt of this gate and of a request that the key may know of.
func (s *Server) paper(ctx context.Context, k *approval.APIKey, p *ReceiptBody) (ReceiptFacts, ReceiptQuery, error) {
	wish := ReceiptQuery{Receipt: p.Receipt, Tool: p.ToolName, ArgsSHA256: p.ArgsSHA256, AllowExpired: p.Late}
	if s.Receipts == nil {
		return ReceiptFacts{}, wish, problem(http.StatusNotFound, "no receipt is checked here")
	}
	if len(p.RequestData.Value) > 0 {
		sum := approval.Digest(p.RequestData.Value)
		if wish.ArgsSHA256 != "" && wish.ArgsSHA256 != sum {
			return ReceiptFacts{}, wish, problem(http.StatusUnprocessableEntity, "request_data and args_sha256 contradict each other")
		}
		wish.ArgsSHA256 = sum
	}
	f, err := s.Receipts.Facts(p.Receipt)
	if err != nil {
		return f, wish, problem(http.StatusUnprocessableEntity, "this gate has not signed that receipt")
	}
	if f.Workspace != k.Workspace {
		return f, wish, problem(http.StatusNotFound, sayNotFound)
	}
	_, _, err = s.find(ctx, k, idPrefix+f.RequestID)
	return f, wish, err
}

func factsOf(f ReceiptFacts) Facts {
	return Facts{
		Valid: true, ApprovalID: idPrefix + strings.TrimSpace(f.RequestID), ToolName: f.Tool, ActionType: f.ActionType, ArgsSHA256: f.ArgsSHA256,
		DecisionType: f.DecisionType, By: f.By, Via: f.Via, Rule: f.Rule, Issued: f.Issued.UTC(), Expires: f.Expires.UTC(),
	}
}
