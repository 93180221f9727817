# Two reads do not conflict, so they run concurrently.
user > compare
model > Put {"path":"/project/a","content":"1"}
model > Put {"path":"/project/b","content":"2"}
model > Written.
user > read both
tools hold
model > Read {"path":"/project/a"}
model > Read {"path":"/project/b"}
ran Read 2
activity: tool
tools go
model > They differ.
context: … / call Put / … / … / … / assistant Written. / user read both / call Read / call Read / result … / result … / assistant They differ.
pod is idle
