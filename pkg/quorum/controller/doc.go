// Package controller is what the active KRaft controller decides: who is registered, alive and in sync, who leads
// what, which topics there are. It is pure: (time, state, request) -> metadata records and the response that may be
// sent when they are committed.
//
// Decisions are made on the appended image: the committed one plus the records of this leadership that are not
// committed yet, so that of two requests in flight only one can pass a check that the other one's records would
// fail. When leadership or an append is lost, so is the appended image.
package controller
