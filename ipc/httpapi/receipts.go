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
	"github.com/permesso-dev/permesso/approval/apikey"
)

// ReceiptBody is a receipt, and what it must be valid for.
type ReceiptBody struct {
	Receipt      string `json:"receipt" maxLength:"16384" doc:"The signed note, unchanged."`
	ToolName     string `json:"tool_name,omitempty" maxLength:"64" doc:"Require this tool."`
	RequestData  Object `json:"request_data,omitzero" doc:"Require these arguments, byte for byte."`
	ArgsSubset   Object `json:"args_subset,omitzero" doc:"The arguments that were used, a part of request_data, if the receipt covers parts."`
	ArgsSHA256   string `json:"args_sha256,omitempty" pattern:"^[0-9a-f]{64}$" doc:"Require arguments with this SHA-256."`
	AllowExpired bool   `json:"allow_expired,omitempty" doc:"Accept a receipt older than five minutes."`
}

// Facts are the contents of a receipt.
type Facts struct {
	Valid        bool      `json:"valid"`
	Why          *string   `json:"why" doc:"Why it is not valid."`
	ApprovalID   string    `json:"approval_id"`
	ToolName     string    `json:"tool_name"`
	ActionType   string    `json:"action_type"`
	ArgsSHA256   string    `json:"args_sha256"`
	ArgsSubset   *string   `json:"args_subset" doc:"A list of the lists in request_data of which the receipt covers any part; null: it covers no part."`
	DecisionType string    `json:"decision_type"`
	By           string    `json:"by"`
	Via          string    `json:"via"`
	Rule         string    `json:"rule"`
	Issued       time.Time `json:"issued"`
	Expires      time.Time `json:"expires"`
}

type receiptIn struct{ Body ReceiptBody }

func (s *Server) receipts(api huma.API) {
	read := []string{apikey.MayRead, apikey.MayRequest}
	register(api, op("verify-receipt", http.MethodPost, "/v1/receipts/verify", "Verify a receipt",
		"A receipt of this gate that does not meet the requirements is valid: false, with the reason. A receipt that this gate has not signed is 422; one of another workspace or client is 404.",
		read, http.StatusNotFound), s.verify)
	register(api, op("redeem-receipt", http.MethodPost, "/v1/receipts/redeem", "Verify and redeem a receipt",
		"409 if it was already redeemed, or if the record of its request is not written yet.",
		read, http.StatusNotFound, http.StatusConflict), s.redeem)
}

func (s *Server) verify(ctx context.Context, k *apikey.Key, in *receiptIn) (*Facts, error) {
	f, err := s.parseReceipt(ctx, k, &in.Body)
	if err != nil {
		return nil, err
	}
	facts := factsOf(f)
	if err := s.check(&in.Body); err != nil {
		facts.Valid, facts.Why = false, new(err.Error())
	}
	return facts, nil
}

func (s *Server) redeem(ctx context.Context, k *apikey.Key, in *receiptIn) (*Facts, error) {
	in.Body.AllowExpired = false
	f, err := s.parseReceipt(ctx, k, &in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.check(&in.Body); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, err.Error())
	}
	switch err := s.Receipts.Redeem(ctx, f, "key "+k.ID); {
	case errors.Is(err, fs.ErrExist):
		return nil, problem(http.StatusConflict, "this receipt was already redeemed")
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem(http.StatusConflict, "the record of this request is not written yet")
	case err != nil:
		return nil, s.internalError("redeem receipt failed", err)
	}
	return factsOf(f), nil
}

func (s *Server) check(p *ReceiptBody) error {
	if used := p.ArgsSubset.Value; used.Kind() == '{' {
		if err := s.Receipts.CheckSubset(p.Receipt, p.RequestData.Value, used); err != nil {
			return err
		}
	}
	return s.Receipts.Check(p.Receipt, p.ToolName, p.ArgsSHA256, p.AllowExpired)
}

// parseReceipt reads a receipt of this gate, for a request that is visible to the key.
func (s *Server) parseReceipt(ctx context.Context, k *apikey.Key, p *ReceiptBody) (f approval.ReceiptFacts, err error) {
	if len(p.RequestData.Value) > 0 {
		sum := approval.Digest(p.RequestData.Value)
		if p.ArgsSHA256 != "" && p.ArgsSHA256 != sum {
			return f, problem(http.StatusUnprocessableEntity, "request_data and args_sha256 contradict each other")
		}
		p.ArgsSHA256 = sum
	}
	if f, err = s.Receipts.Parse(p.Receipt); err != nil {
		return f, problem(http.StatusUnprocessableEntity, "this gate has not signed the receipt")
	}
	if f.Workspace != k.Workspace {
		return f, problem(http.StatusNotFound, detailNotFound)
	}
	st, err := s.Find(ctx, s.clientOf(k), f.RequestID)
	_, err = s.reply(k, f.RequestID, st, err)
	return f, err
}

func factsOf(f approval.ReceiptFacts) *Facts {
	return &Facts{
		Valid: true, ApprovalID: idPrefix + strings.TrimSpace(f.RequestID), ToolName: f.Tool, ActionType: f.ActionType, ArgsSHA256: f.ArgsSHA256, ArgsSubset: nonEmpty(f.ArgsSubset),
		DecisionType: f.DecisionType, By: f.By, Via: f.Via, Rule: f.Rule, Issued: f.Issued.UTC(), Expires: f.Expires.UTC(),
	}
}
