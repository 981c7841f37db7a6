// Package testscale stretches the time-outs of tests on slow or busy machines.
package testscale

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// Variable names the environment variable that holds the factor, a decimal number such as 3 or 0.5.
const Variable = "HIGHWATER_TEST_SCALE"

var factor = sync.OnceValue(func() float64 { return parse(os.Getenv(Variable)) })

// Duration returns d times the factor; d itself when the variable is unset or not a positive number.
func Duration(d time.Duration) time.Duration {
	return time.Duration(float64(d) * factor())
}

func parse(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f <= 0 {
		return 1
	}
	return f
}
