package pipeline

// Price is what a million tokens of a model cost; zero: the configuration names no price.
type Price struct {
	Million  float64
	Batch    float64 // in batch jobs
	Currency string  // "": the configuration names none
}

// Of returns the price of some tokens; nil: there is none.
func (p Price) Of(tokens int64) *float64 {
	if p.Million <= 0 {
		return nil
	}
	return new(float64(tokens) / 1e6 * p.Million) //nolint:mnd // a million
}
