package main

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	retriesUsual  = 5
	backoffBase   = 200 * time.Millisecond
	backoffMax    = 5 * time.Second
	pingInterval  = 5 * time.Second
	closePause    = 100 * time.Millisecond
	receiveBuffer = 100
)

// limit is how often to retry: as often as asked for, or as usual.
func limit(retries int) int {
	if retries == 0 {
		return retriesUsual
	}
	return retries
}

func retryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	}
	return false
}

// backoff is the pause before retry number `retry`, counted from 1: linear, capped, half of it at random.
func backoff(retry int) time.Duration {
	full := min(backoffBase*time.Duration(retry), backoffMax)
	return full/2 + rand.N(full/2+1)
}
