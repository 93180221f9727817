user > sing
model > Sing {"song":"low"}
log … assistant_item(Sing) llm_end(done) tool_result(invalid) llm_call
model > I cannot sing.
context: user sing / call Sing / result there is no tool `Sing`… / assistant I cannot sing.
pod is idle
