package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what all clients did and saw. It must be linearizable: as if each append and each read had happened at one
// moment between its call and its return.
type history struct {
	// floor is the highest offset that any finished operation has seen. What begins later must be beyond it.
	floor      int64
	operations []porcupine.Operation
	open       []*appendOp // without an outcome
	numbers    map[string]int
}

// operation is one put or get of one key. Values stand for themselves by number: comparing them is most of the checker's
// work.
type operation struct {
	put   bool
	key   string
	value int
}

// number is the same for the same value, and 0 for none.
func (h *history) number(value string) int {
	if value == "" {
		return 0
	}
	n, ok := h.numbers[value]
	if !ok {
		if h.numbers == nil {
			h.numbers = map[string]int{}
		}
		n = len(h.numbers) + 1
		h.numbers[value] = n
	}
	return n
}

func (h *history) began(op *appendOp) { h.open = append(h.open, op) }

func (h *history) appended(w *world, op *appendOp, base int64) {
	if base < op.floor {
		w.violate("Linearizable", "%v got offset %d, but offset %d had been seen before it began", op, base, op.floor-1)
	}
	h.floor = max(h.floor, base+int64(len(op.keys)))
	h.open = slices.DeleteFunc(h.open, func(o *appendOp) bool { return o == op })
	h.put(op, int64(w.now))
}

// put adds the puts of an append. The last one of a key within a batch is the one that counts.
func (h *history) put(op *appendOp, returned int64) {
	for i, key := range op.keys {
		if !slices.Contains(op.keys[i+1:], key) {
			h.operations = append(h.operations, porcupine.Operation{
				ClientId: op.client, Input: operation{put: true, key: key, value: h.number(op.values[i])}, Call: int64(op.called), Return: returned,
			})
		}
	}
}

func (h *history) barrier(w *world, op *readOp) {
	if op.latest < op.floor {
		w.violate("Linearizable", "the latest offset was said to be %d, but offset %d had been seen before the question", op.latest, op.floor-1)
	}
	h.floor = max(h.floor, op.latest)
}

func (h *history) read(c *client, op *readOp, value string) {
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: c.id, Input: operation{key: op.key}, Output: h.number(value), Call: int64(op.called), Return: int64(c.w.now),
	})
}

// register is the model: each key holds the value that was put last.
var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		op := input.(operation)
		if op.put {
			return true, op.value
		}
		return output.(int) == state.(int), state
	},
}

// check looks for an order of all operations that explains what the clients saw. An append without an outcome took place
// if the committed log has it, and at the latest when it was committed; else it did not.
func (h *history) check(w *world) {
	for _, op := range h.open {
		if p, ok := w.oracle.values[op.values[0]]; ok {
			h.put(op, int64(p.at))
		}
	}
	w.counts.operations += len(h.operations)
	byKey := map[string][]porcupine.Operation{}
	for _, op := range h.operations {
		key := op.Input.(operation).key
		byKey[key] = append(byKey[key], op)
	}
	for i := range keys {
		key := "k" + string(rune('0'+i))
		operations := byKey[key]
		slices.SortStableFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch porcupine.CheckOperationsTimeout(register, operations, 3*time.Second) {
		case porcupine.Illegal:
			w.violate("Linearizable", "no order of the %d puts and gets of key %s explains what the clients saw", len(operations), key)
		case porcupine.Unknown:
			w.counts.unknown++
		case porcupine.Ok:
		}
	}
}
