package pipeline

// Price is the price of a million tokens of a model; zero: not configured.
type Price struct {
	Million  float64
	Batch    float64 // in batch jobs
	Currency string  // "": not configured
}

// Of returns the price of some tokens; nil: unknown.
func (p Price) Of(tokens int64) *float64 {
	if p.Million <= 0 {
		return nil
	}
	return new(float64(tokens) / 1e6 * p.Million) //nolint:mnd // a million
}
