person > rename better
reply < ok
name: better
person > checkpoint one
reply < ok
person > archive
person > unarchive
person > posture plan
log: renamed checkpoint archived unarchived config_changed(permissions.posture)
user > note it
model > Note {"line":"milk"}
ran Note 0
model > I may only plan.
crash
name: better
pod is idle
