user > tell me
model > begin A long st
model > stop max_tokens
alert < output limit
context: user tell me / assistant A long st
pod is idle
