package embed

import "errors"

// TokensOf is how many tokens of a text the answer counts, or about as many where the embedder does not say.
func (r Result) TokensOf(text string) int {
	const bytesOfToken = 4
	if r.Tokens > 0 {
		return r.Tokens
	}
	return len(text)/bytesOfToken + 1
}

// Sent is how many tokens the answers count of those texts that had to be sent.
func Sent(results []Result, texts []string) (tokens int) {
	for i := range results {
		if results[i].Sent {
			tokens += results[i].TokensOf(texts[i])
		}
	}
	return tokens
}

// paidError is a failure of a call of which a part was answered, and so paid for.
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

// Paid returns how many tokens were answered of a call that failed.
func Paid(err error) int {
	if paid, is := errors.AsType[*paidError](err); is {
		return paid.tokens
	}
	return 0
}

// tokensOf is what those texts took that were answered.
func tokensOf(sent []*flight) (tokens int) {
	for _, f := range sent {
		if f.landed && f.answer.Err == nil {
			tokens += f.answer.TokensOf(f.text)
		}
	}
	return tokens
}
