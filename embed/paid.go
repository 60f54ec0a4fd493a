package embed

import "errors"

// TokensOf is the number of tokens of a text, estimated if the embedder does not report it.
func (r Result) TokensOf(text string) int {
	const bytesOfToken = 4
	if r.Tokens > 0 {
		return r.Tokens
	}
	return len(text)/bytesOfToken + 1
}

// Sent is the number of tokens of the texts that were sent.
func Sent(results []Result, texts []string) (tokens int) {
	for i := range results {
		if results[i].Sent {
			tokens += results[i].TokensOf(texts[i])
		}
	}
	return tokens
}

// unknown reports whether the call may have been answered, and so paid for, all the same.
func (r Result) unknown() bool {
	_, code := Classify(r.Err)
	return r.Err != nil && code == "deadline"
}

// paidError is the error of a call that was partly answered, and so partly paid for.
type paidError struct {
	error

	tokens int
}

func (e *paidError) Unwrap() error { return e.error }

func paidFor(err error, tokens int) error {
	if tokens == 0 {
		return err
	}
	return &paidError{err, tokens}
}

// Paid returns the number of tokens that were answered in a failed call.
func Paid(err error) int {
	if paid, is := errors.AsType[*paidError](err); is {
		return paid.tokens
	}
	return 0
}

// tokensOf is the number of tokens of the answered texts.
func tokensOf(sent []*flight) (tokens int) {
	for _, f := range sent {
		if f.landed && f.answer.Err == nil {
			tokens += f.answer.TokensOf(f.text)
		}
	}
	return tokens
}
