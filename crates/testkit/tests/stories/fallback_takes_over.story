# The next model replies for the rest of the run; the next run starts with the first model again.
with fallback 2
user > tell me
model > fails for good no such key
alert < spare-1
model > fails for good no such model
alert < spare-2
model > Here I am.
log … llm_call llm_end(failed) alert llm_call llm_end(failed) alert llm_call assistant_item(text)
pod is idle
user > again
model > First one here.
pod is idle
context: user tell me / assistant Here I am. / user again / assistant First one here.
