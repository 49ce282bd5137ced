// Package move chooses the next step of a request from the documents that exist. It is
// pure: the caller says what the documents are and what time it is.
//
// # States
//
// Next looks at the documents of one key and names the first row that fits.
// Documents that a row does not name may be present or not.
//
//	row  files  when                                        move
//	1    C      P D R Q X left, or S missing or torn        settle
//	            (once its retention is over, S may be gone)
//	2    R      running here                                wait
//	3    R      not running here                            end interrupted; an idempotent tool
//	                                                        without a second claim: run once more;
//	                                                        a task, first: await its end
//	4    P D    D not valid, or another P's                 reject D, the slot is free again
//	5    P D    approved, now <= run_before, tool unchanged claim, run, end
//	            tool gone or changed                        end failed
//	6    P D    approved, later than run_before             end expired
//	7    P D    any other verdict                           end with it
//	8    P Q    same bytes                                  drop Q
//	            other bytes                                 reject Q
//	9    P X                                                decide cancelled
//	10   P      now >= expires_at                           decide expired
//	11   P                                                  wait for expires_at
//	12   Q      incomplete, first seen less than 2 s ago    wait
//	13   Q      (or a P without a seal, from a host program) intake
//	14   D                                                  reject D
//	15   X                                                  drop X
//	16   nothing, or settled                                rest
//
// Recovery after a crash is the same: Next is called with the documents that exist.
package move
