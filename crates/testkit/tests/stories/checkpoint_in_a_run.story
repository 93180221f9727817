user > tell me
model > begin Once
person > checkpoint in the middle
reply < ok
person > rename better
reply < ok
model > stop end_turn
log … checkpoint renamed assistant_item(text) run_completed(finished)
name: better
pod is idle
